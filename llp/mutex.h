// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// std::mutex and std::lock_guard with the annotations that libstdc++'s lack.
#pragma once

#include <mutex>
#include <new>

#include "llp/annotations.h"

namespace ewarp::llp {

class EWARP_CAPABILITY("mutex") Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() EWARP_ACQUIRE() { mutex_.lock(); }
  void unlock() EWARP_RELEASE() { mutex_.unlock(); }
  bool try_lock() EWARP_TRY_ACQUIRE() { return mutex_.try_lock(); }
  // A forked child, whose one thread has not taken it: whoever held it is not there.
  void renew_in_child() { new (&mutex_) std::mutex; }

 private:
  std::mutex mutex_;
};

// Holds a Mutex or a Spinlock until the end of its scope.
template <class Lockable>
class EWARP_SCOPED_CAPABILITY Guard {
 public:
  explicit Guard(Lockable& lock) EWARP_ACQUIRE(lock) : lock_(lock) { lock_.lock(); }
  // Of one that is held already.
  Guard(Lockable& lock, std::adopt_lock_t) EWARP_REQUIRES(lock) : lock_(lock) {}
  ~Guard() EWARP_RELEASE() { lock_.unlock(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  Lockable& lock_;
};

}  // namespace ewarp::llp
