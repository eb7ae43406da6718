// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// When a thread that polls looks at the descriptor of connections, which costs system calls and seldom has news: a
// thread that waits for something does so often. One that comes back from computing is not held up by it. What is due
// may wait for some milliseconds; where a progress thread runs, it hears of news at once.
//
// Pure: the time comes as an argument, in nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ewarp::channel {

class ConnectionsTurn {
 public:
  static constexpr std::uint64_t kPauseNs = 30'000;       // as Rhythm::kAtOnceNs, between two polls
  static constexpr std::uint64_t kPolledNs = 100'000;     // of one wait, without a look
  static constexpr std::uint64_t kLongestNs = 5'000'000;  // without a look, whatever the thread does

  // With the next poll in any case.
  void ask() { asked_ = true; }
  // A poll begins. Behind a pause it is of another wait.
  void poll(std::uint64_t now) {
    if (since(polled_at_, now) > kPauseNs) waits_since_ = now;
    polled_at_ = now;
  }
  std::uint64_t polled_at() const { return polled_at_; }
  // idly: and it may look at connections without having been asked to. True: it has to, and is taken to do so.
  bool take(std::uint64_t now, bool idly) {
    const bool due = since(std::max(waits_since_, looked_at_), now) > kPolledNs || since(looked_at_, now) > kLongestNs;
    if (!asked_ && !(idly && due)) return false;
    asked_ = false;
    looked_at_ = now;
    return true;
  }

 private:
  static std::uint64_t since(std::uint64_t then, std::uint64_t now) { return now - std::min(now, then); }

  bool asked_ = true;
  std::uint64_t polled_at_ = 0, waits_since_ = 0, looked_at_ = 0;
};

}  // namespace ewarp::channel
