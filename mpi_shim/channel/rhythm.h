// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether the calls of an application follow each other at once: who leaves the library then need not arm events for
// the progress thread, which costs a wake-up. Calls with large requests are of their own kind: what follows small ones,
// those of a barrier for instance, says nothing about them. Pure: the time comes as an argument, in nanoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace ewarp::channel {

class Rhythm {
 public:
  enum class Kind : std::uint8_t { send, large_send, receive, large_receive, other };
  static constexpr std::uint64_t kAtOnceNs = 30'000;

  // A call begins. True: it follows the one before at once.
  bool enter(std::uint64_t now) {
    const bool at_once = now - std::min(now, left_at_) <= kAtOnceNs;
    followed_[static_cast<std::size_t>(last_)] = at_once;
    return at_once;
  }
  // It ends, having been of this kind. now: when, or when it began if it had nothing to do.
  void leave(Kind kind, std::uint64_t now) {
    last_ = kind;
    left_at_ = now;
  }
  // Whether the last call of this kind was followed by another at once.
  bool followed(Kind kind) const { return followed_[static_cast<std::size_t>(kind)]; }

 private:
  std::array<bool, static_cast<std::size_t>(Kind::other) + 1> followed_{};  // by kind
  Kind last_ = Kind::other;
  std::uint64_t left_at_ = 0;
};

}  // namespace ewarp::channel
