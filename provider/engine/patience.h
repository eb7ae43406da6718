// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How long an idle thread spins before it sleeps. To wake a sleeping thread costs the waker, often the application,
// 5 to 20 us, and more pass until the thread runs; so the thread spins through pauses such as the last one.
#pragma once

#include <sched.h>

#include <algorithm>

#include "llp/spinlock.h"
#include "provider/engine/reactor.h"

namespace ewarp::verbs {

class Patience {
 public:
  using Clock = Reactor::Clock;

  // Lets others have the CPU, and says for how long.
  static std::chrono::nanoseconds give_way() {
    const auto before = Clock::now();
    sched_yield();
    return Clock::now() - before;
  }

  // most: never longer than this. 0: it never spins.
  explicit Patience(std::chrono::nanoseconds most, std::chrono::nanoseconds (*yield)() = give_way)
      : yield_(yield), most_(most), little_(std::min<std::chrono::nanoseconds>(most, kLittle)), limit_(little_) {}

  // A pause begins.
  void begin(Clock::time_point now) {
    since_ = yielded_ = now;
    lost_ = {};
  }
  // It ended: what was waited for has come. The next one begins.
  void end(Clock::time_point now) {
    if (const auto pause = now - since_; now < crowded_until_)
      limit_ = {};
    else if (pause > little_)
      limit_ = pause <= most_ ? most_ : little_;
    else
      limit_ = std::max(limit_, little_);
    begin(now);
  }
  // To be asked in each turn of the spinning thread; false: it sleeps. Who needs the CPU gets it.
  bool lasts(Clock::time_point now) {
    if (now - since_ >= limit_) return false;
    if (now - yielded_ < (yielded_ == since_ ? kLittle : kBetween)) {
      llp::cpu_relax();
      return true;
    }
    yielded_ = now;
    if (const auto taken = yield_(); taken > kTaken) lost_ += taken;
    if (lost_ <= kBearable) return true;
    crowded_until_ = now + kCrowded;
    limit_ = {};
    return false;
  }

 private:
  static constexpr auto kLittle = std::chrono::microseconds(100), kBetween = std::chrono::microseconds(20);
  // A yield that took so long gave the CPU to somebody. If so much goes that way in a pause, we do without spinning for
  // a while.
  static constexpr auto kTaken = std::chrono::microseconds(20), kBearable = std::chrono::microseconds(200);
  static constexpr auto kCrowded = std::chrono::milliseconds(20);

  std::chrono::nanoseconds (*yield_)();
  std::chrono::nanoseconds most_, little_, limit_, lost_{};
  Clock::time_point since_{}, yielded_{}, crowded_until_{};
};

}  // namespace ewarp::verbs
