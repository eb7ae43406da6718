// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the background thread is asked to do: tasks, timers, descriptors to watch. Threading: any thread, but where it
// says otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "llp/mutex.h"

namespace ewarp::verbs {

class Inbox {
 public:
  using Clock = std::chrono::steady_clock;
  using Task = std::function<void()>;
  using OnReady = std::function<void(std::uint32_t)>;
  // For the watcher: from now on, or no more (events 0), in the order in which it was asked for.
  struct WatchOp {
    int fd;
    std::uint32_t events;
    std::uint64_t token;
  };

  void add_task(Task task);
  // Never 0. *first: it is the next one due.
  std::uint64_t add_timer(Clock::time_point when, Task task, bool* first);
  // After return it does not start any more (it may be running). 0 is ignored.
  void cancel_timer(std::uint64_t id);
  // Replaces what was asked for this fd before.
  void watch(int fd, std::uint32_t events, OnReady on_ready);
  // Throws nothing: destructors call it.
  void unwatch(int fd) noexcept;

  // --- background thread: what is called may throw; that is logged ---

  void run_tasks();
  void run_timers();
  // At most `limit` (negative: no limit), and not past the next timer; 0: there are tasks, or the watcher is behind.
  std::chrono::nanoseconds until_next(std::chrono::nanoseconds limit);
  std::vector<WatchOp> take_watch_ops();
  // Calls who waits for it, once.
  void run_ready(std::uint64_t token, std::uint32_t events);

  // --- around fork(), in the thread that calls it ---

  void lock() EWARP_ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock() EWARP_RELEASE(mutex_) { mutex_.unlock(); }
  // The child, where lock() was not called.
  void renew_in_child() { mutex_.renew_in_child(); }
  // The child: what is watched is the parent's.
  void close_watched_in_child() EWARP_REQUIRES(mutex_);
  // The child: true if nobody has asked for anything but to watch `own` (-1: nothing); then it is empty.
  bool begin_anew_in_child(int own) EWARP_REQUIRES(mutex_);

 private:
  struct Watch {
    std::uint64_t token = 0;
    OnReady on_ready;
  };

  llp::Mutex mutex_;
  std::vector<Task> tasks_ EWARP_GUARDED_BY(mutex_);
  std::map<std::pair<Clock::time_point, std::uint64_t>, Task> timers_ EWARP_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Clock::time_point> timer_times_ EWARP_GUARDED_BY(mutex_);
  std::uint64_t next_id_ EWARP_GUARDED_BY(mutex_) = 1;
  std::vector<WatchOp> watch_ops_ EWARP_GUARDED_BY(mutex_);
  std::unordered_map<int, Watch> watches_ EWARP_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, int> tokens_ EWARP_GUARDED_BY(mutex_);
};

}  // namespace ewarp::verbs
