// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The interfaces of the host as they were looked at last, for those who must not ask the kernel themselves: to ask
// takes some system calls for each interface, and the kernel's lock of the network's configuration.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "llp/mutex.h"
#include "llp/netif.h"
#include "llp/spinlock.h"

namespace ewarp::verbs {

// Each look makes the devices follow their interfaces (Device::follow()).
// Threading: any thread. look() and look_unless_recent() ask the kernel: not with the engine held. The others do not
// wait.
class KnownInterfaces {
 public:
  using Clock = std::chrono::steady_clock;
  using List = std::vector<llp::Interface>;
  using Look = std::optional<List> (*)();
  // Has a task done at this time, where it may wait. False: nobody is there who could.
  using Later = bool (*)(Clock::time_point when, std::function<void()> task);
  // Strangers can make us look, but not more often. Looks that fail come at twice the time each, up to kLongestPause.
  static constexpr auto kLookAgain = std::chrono::milliseconds(100);
  static constexpr auto kLongestPause = std::chrono::milliseconds(6400);

  // after: a look that was put off has succeeded.
  KnownInterfaces(Look look, Later later, void (*after)() = nullptr) : look_(look), later_(later), after_(after) {}

  // Never changed once it is given. Null: nobody has looked yet.
  std::shared_ptr<const List> list() const {
    const llp::Guard guard(list_lock_);
    return list_;
  }
  // Grows when list() has changed: read it before list().
  const std::atomic<std::uint32_t>& version() const { return version_; }

  // False: the kernel cannot be asked, or there is no memory for its answer; all stays as it is, and it is asked again.
  bool look();
  void look_unless_recent();
  // Somebody misses something in the list: a look will follow, kLookAgain after the one before.
  void look_soon();

  void before_fork() EWARP_ACQUIRE(looking_) { looking_.lock(); }
  void after_fork_parent() EWARP_RELEASE(looking_) { looking_.unlock(); }
  void after_fork_child() EWARP_RELEASE(looking_) {
    asked_.store(false, std::memory_order_relaxed);  // of the parent's thread
    looking_.unlock();
  }
  // Forked inside the engine's holder, where nothing was locked before.
  void forget_in_child() {
    asked_.store(false, std::memory_order_relaxed);
    looking_.renew_in_child();
  }

 private:
  void take(List now) EWARP_REQUIRES(looking_);

  const Look look_;
  const Later later_;
  void (*const after_)();
  llp::Mutex looking_;  // one look at a time, so that the last one is the latest
  mutable llp::Spinlock list_lock_;
  std::shared_ptr<const List> list_ EWARP_GUARDED_BY(list_lock_);  // written under looking_ too
  std::atomic<std::uint32_t> version_{0};
  std::atomic<Clock::time_point> looked_at_{Clock::time_point{}};
  std::atomic<std::chrono::milliseconds> pause_{kLookAgain};
  std::atomic<bool> asked_{false};  // look_soon(), and the look has not begun
};

KnownInterfaces& known_interfaces();

}  // namespace ewarp::verbs
