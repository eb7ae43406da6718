// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a peer has entered into its ledgers here and nobody has waited for yet.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <optional>

#include "mpi_shim/gravel/core/entry.h"

namespace ewarp::gravel {

enum class Arrival : std::uint8_t {
  receive_buffer,  // a consumer's buffer
  send_request,    // a producer has something, and will write it where it is told
  send_buffer,     // a producer's buffer
};
inline constexpr std::size_t kArrivals = 3;

// In the order in which they were entered.
class Arrivals {
 public:
  // Beyond that a peer's entries stay in its ledgers.
  static constexpr std::size_t kMost = 4096;

  bool full() const { return count_ == kMost; }
  void add(Arrival kind, const Entry& entry) {
    of(kind).push_back(entry);
    ++count_;
  }
  // The first one of this tag.
  std::optional<Entry> take(Arrival kind, int tag) {
    auto& queue = of(kind);
    const auto it =
        std::find_if(queue.begin(), queue.end(), [tag](const Entry& e) { return tag == kAnyTag || e.tag == tag; });
    if (it == queue.end()) return std::nullopt;
    const Entry out = *it;
    queue.erase(it);
    --count_;
    return out;
  }
  // Needs no memory.
  void clear() {
    for (auto& queue : queues_) queue.clear();
    count_ = 0;
  }

 private:
  std::deque<Entry>& of(Arrival kind) { return queues_[static_cast<std::size_t>(kind)]; }

  std::array<std::deque<Entry>, kArrivals> queues_;
  std::size_t count_ = 0;
};

}  // namespace ewarp::gravel
