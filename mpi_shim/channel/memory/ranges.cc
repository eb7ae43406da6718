// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/memory/ranges.h"

#include <cassert>
#include <iterator>

namespace ewarp::channel {

void Ranges::add(const Range& range) {
  assert(range.begin < range.end);
  remove(range);
  ends_.emplace(range.begin, range.end);
}

void Ranges::remove(const Range& range) {
  auto at = ends_.upper_bound(range.begin);
  if (at != ends_.begin() && std::prev(at)->second > range.begin) --at;
  while (at != ends_.end() && at->first < range.end) {
    const Range old{at->first, at->second};
    at = ends_.erase(at);
    if (old.begin < range.begin) ends_.emplace(old.begin, range.begin);
    if (old.end > range.end) ends_.emplace(range.end, old.end);
  }
}

bool Ranges::covers(const Range& range) const {
  assert(range.begin < range.end);
  auto at = ends_.upper_bound(range.begin);
  if (at == ends_.begin()) return false;
  --at;
  std::uintptr_t covered = at->second;
  if (covered <= range.begin) return false;
  while (covered < range.end && ++at != ends_.end() && at->first == covered) covered = at->second;
  return covered >= range.end;
}

bool Ranges::overlap(const Range& range) const {
  const auto behind = ends_.lower_bound(range.end);
  return behind != ends_.begin() && std::prev(behind)->second > range.begin;
}

}  // namespace ewarp::channel
