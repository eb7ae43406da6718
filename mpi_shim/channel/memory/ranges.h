// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Addresses, and sets of them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace ewarp::channel {

// From begin up to end, without it.
struct Range {
  std::uintptr_t begin = 0, end = 0;

  static constexpr Range everything() { return {0, UINTPTR_MAX}; }
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Range&) const = default;
};

class Ranges {
 public:
  void add(const Range& range);
  void remove(const Range& range);
  // Requires: the range is not empty.
  bool covers(const Range& range) const;
  bool overlap(const Range& range) const;
  std::size_t size() const { return ends_.size(); }
  void clear() { ends_.clear(); }

 private:
  std::map<std::uintptr_t, std::uintptr_t> ends_;  // by begin; they do not overlap
};

}  // namespace ewarp::channel
