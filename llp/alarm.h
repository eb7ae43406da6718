// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A point in time that a sleeper waits for, and that others may move while it sleeps without waking it.
#pragma once

#include <chrono>

namespace ewarp::llp {

// A timerfd on the steady clock. Threading: set() and clear() by any thread.
class Alarm {
 public:
  using Clock = std::chrono::steady_clock;

  Alarm() = default;
  ~Alarm() { close(); }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  // 0 or errno (EMFILE, ENFILE, ENOMEM). Requires: not open.
  int open();
  bool is_open() const { return fd_ >= 0; }
  // Readable from the point in time on, until the next set() or clear().
  int fd() const { return fd_; }
  // False: it is not open, or a sandbox forbids the call.
  bool set(Clock::time_point when);
  void clear();
  void close();

 private:
  int fd_ = -1;
};

}  // namespace ewarp::llp
