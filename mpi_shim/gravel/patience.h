// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How one waits for memory to change: no event tells of a peer's Write, so it is looked for again and again. After a
// while, or at once if there are more processes than CPUs, others run in between.
#pragma once

#include <sched.h>

#include <chrono>

namespace ewarp::gravel {

class Patience {
 public:
  explicit Patience(bool shares_cpu) : polite_(shares_cpu) {}
  // Nothing has come.
  void pause() {
    if (!polite_ && ++pauses_ % kPausesPerLook == 0)
      polite_ = Clock::now() - began_ >= std::chrono::microseconds(kPoliteUs);
    if (polite_) sched_yield();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kPausesPerLook = 16, kPoliteUs = 50;

  bool polite_;
  int pauses_ = 0;
  Clock::time_point began_ = Clock::now();
};

}  // namespace ewarp::gravel
