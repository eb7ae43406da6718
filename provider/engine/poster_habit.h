// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether an application's thread goes on computing after a post of much data, or polls for its end at once: what it
// did last time. Left to the background thread, the post of one that waits anyway costs a wake-up for nothing.
//
// Threading: each thread has its own.
#pragma once

#include <chrono>

namespace ewarp::verbs {

class PosterHabit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Before a post. It is taken to wait once it was seen to; a post right behind another one says nothing.
  bool waits(Time now) {
    if (polled_ != Time())
      waits_ = polled_ - posted_ <= kAtOnce;
    else if (now - posted_ > kAtOnce)
      waits_ = false;
    return waits_;
  }
  // The post has been made.
  void posted(Time now) {
    posted_ = now;
    polled_ = Time();
    left_ = kPolls;
  }
  // The thread polls, and finds nothing. True: polled() is to be told.
  bool poll() { return left_ > 0 && left_-- == 1; }
  void polled(Time now) { polled_ = now; }

 private:
  // So many polls within so long: more than a look whether something has come.
  static constexpr int kPolls = 4;
  static constexpr auto kAtOnce = std::chrono::microseconds(30);

  Time posted_{}, polled_{};  // polled: the last of kPolls; or not so many
  int left_ = 0;
  bool waits_ = false;
};

}  // namespace ewarp::verbs
