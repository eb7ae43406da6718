// Whether the application goes on computing after a post of much data, or polls for its end at once: what it did last
// time. Left to the background thread, the post of a thread that waits anyway costs a wake-up for nothing.
//
// Threading: any thread at any time; a race costs a wrong guess.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ewarp::verbs {

class PosterHabit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Before a post. It is taken to wait once it was seen to; a post right behind another one says nothing.
  bool waits(Time now) {
    const std::int64_t posted = posted_.load(std::memory_order_relaxed),
                       polled = polled_.load(std::memory_order_relaxed);
    if (polled != 0)
      waits_.store(polled - posted <= kAtOnceNs, std::memory_order_relaxed);
    else if (ns(now) - posted > kAtOnceNs)
      waits_.store(false, std::memory_order_relaxed);
    return waits_.load(std::memory_order_relaxed);
  }
  // The post has been made.
  void posted(Time now) {
    posted_.store(ns(now), std::memory_order_relaxed);
    polled_.store(0, std::memory_order_relaxed);
    left_.store(kPolls, std::memory_order_relaxed);
  }
  // The application polls, and finds nothing. True: polled() is to be told.
  bool poll() {
    return left_.load(std::memory_order_relaxed) > 0 && left_.fetch_sub(1, std::memory_order_relaxed) == 1;
  }
  void polled(Time now) { polled_.store(ns(now), std::memory_order_relaxed); }

 private:
  // So many polls within so long: more than a look whether something has come.
  static constexpr int kPolls = 4;
  static constexpr std::int64_t kAtOnceNs = 30'000;

  static std::int64_t ns(Time t) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
  }

  std::atomic<std::int64_t> posted_{0}, polled_{0};  // polled: the last of kPolls; 0: not so many
  std::atomic<int> left_{0};
  std::atomic<bool> waits_{false};
};

}  // namespace ewarp::verbs
