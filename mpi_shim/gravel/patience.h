// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How one waits for memory to change: no event tells of a peer's Write, so it is looked for again and again. After a
// while others run in between; where there are more processes than CPUs the channel sees to that, and earlier. One who
// yields to somebody that computes may be away for milliseconds.
#pragma once

#include <sched.h>

#include <chrono>

namespace ewarp::gravel {

class Patience {
 public:
  // Nothing has come.
  void pause() {
    if (++pauses_ % kPausesPerLook == 0) polite_ = Clock::now() - began_ >= kPolite;
    if (polite_) sched_yield();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kPausesPerLook = 64;
  static constexpr std::chrono::milliseconds kPolite{1};

  int pauses_ = 0;
  bool polite_ = false;
  Clock::time_point began_ = Clock::now();
};

}  // namespace ewarp::gravel
