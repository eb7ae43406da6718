// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The two kinds of Watcher, for make_watcher() only.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "llp/watcher.h"

namespace ewarp::llp {

// An eventfd that its waiter never reads: it is watched for edges. At most one write for each time it was seen.
// Threading: wake() any thread and signal handlers, the rest the waiting thread.
class WakeUp {
 public:
  WakeUp();
  ~WakeUp();
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  int fd() const { return fd_; }  // -1: no fd was left
  void wake();
  // The waiter saw the edge and is about to return. Pairs with the exchange in wake(): what a waker did before a wake()
  // that wrote nothing is visible after this.
  void seen() { pending_.exchange(false); }
  void close_in_child();

 private:
  int fd_;
  std::atomic<bool> pending_{false};
};

using OnFallBack = std::function<void(const std::string& why)>;

// Null with a negative errno in *error. single_issuer false: as on a kernel that does not know such rings.
std::unique_ptr<Watcher> make_uring_watcher(int* error, bool single_issuer = true, OnFallBack on_fall_back = {});
// wake_up: of a watcher whose place it takes, and which outlives it; null: one of its own.
std::unique_ptr<Watcher> make_epoll_watcher(int* error, WakeUp* wake_up = nullptr);

// In the place of a wait that failed: nothing can be told, but whoever asks in a loop leaves the CPU to others.
void nap(std::chrono::nanoseconds at_most);

}  // namespace ewarp::llp
