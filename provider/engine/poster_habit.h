// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether an application's thread goes on computing after a post of much data, or polls for its end at once: what it
// did last time. Left to the background thread, the post of one that waits anyway costs a wake-up for nothing.
//
// What counts is the time between the post and its polls, and between these. How long they take does not: one may
// receive a large answer. One pause is no habit, for others take a CPU now and then. After a pause the thread's own CPU
// time is asked for: the background thread, woken for the post, may run on the poster's CPU.
//
// Threading: each thread has its own.
#pragma once

#include <chrono>

namespace ewarp::verbs {

class PosterHabit {
 public:
  using Duration = std::chrono::nanoseconds;

  // Which clock tells the time for the calls that follow, up to the next posted(): the thread's CPU time, or any that
  // runs on.
  bool by_cpu_time() const { return by_cpu_time_; }
  // Before a post. It is taken to wait once it was seen to; a post right behind another one says nothing.
  bool waits(Duration now) {
    if (left_ > 0) work(now);
    if (worked_ > kAtOnce)
      pauses_ += pauses_ < kPauses;
    else if (left_ == 0)
      pauses_ = 0;
    return pauses_ < kPauses;
  }
  // The post has been made. now() is asked for the time by by_cpu_time(), which has changed.
  template <class Clock>
  void posted(Clock now) {
    by_cpu_time_ = pauses_ > 0;
    at_ = now();
    worked_ = Duration(0);
    left_ = kPolls;
  }
  // The thread is about to poll. True: begins() is to be told, and ended() when it has found nothing.
  bool looks() const { return left_ > 0; }
  void begins(Duration now) { work(now); }
  void ended(Duration now) {
    at_ = now;
    --left_;
  }

 private:
  void work(Duration now) { worked_ += now - at_; }

  // So many polls within so long: more than a look whether something has come.
  static constexpr int kPolls = 4;
  static constexpr Duration kAtOnce = std::chrono::microseconds(30);
  static constexpr int kPauses = 2;  // behind each other: it computes

  Duration at_{};                      // the post, or the end of the last poll
  Duration worked_ = Duration::max();  // since the post; at first nothing is known
  int left_ = 0;                       // of the polls
  int pauses_ = kPauses;
  bool by_cpu_time_ = false;
};

}  // namespace ewarp::verbs
