// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A lock for sections of a few instructions that never cover a system call or an allocation.
#pragma once

#include <atomic>
#include <cstdint>

#include "llp/annotations.h"

namespace ewarp::llp {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits for what another thread is about to do: spins, lets others run, and then sleeps, a little longer each time. The
// sleep matters where the other thread may run only when this one does not: sched_yield() of a SCHED_FIFO thread lets
// no other class run on its CPU. No cancellation point; errno stays as it was; for signal handlers too.
class Backoff {
 public:
  void wait() {
    if (++turns_ <= kSpins)
      cpu_relax();
    else
      let_others_run();
  }

 private:
  static constexpr unsigned kSpins = 256;
  void let_others_run();

  unsigned turns_ = 0;
};

// Threading: any thread. Holders that a fork() left behind in the parent hold nothing in the child, where what they
// were changing may be half changed. The lock says in which process it was taken; free: 0.
class EWARP_CAPABILITY("spinlock") Spinlock {
 public:
  void lock() EWARP_ACQUIRE() EWARP_NO_LOCK_ANALYSIS {
    for (Backoff backoff; !try_lock();) backoff.wait();
  }
  bool try_lock() EWARP_TRY_ACQUIRE() {
    const std::uint32_t us = process_.load(std::memory_order_relaxed);
    return held_.load(std::memory_order_relaxed) != us && held_.exchange(us, std::memory_order_acquire) != us;
  }
  void unlock() EWARP_RELEASE() { held_.store(0, std::memory_order_release); }

  // In a forked child, while it has one thread.
  static void after_fork_child() { process_.fetch_add(1, std::memory_order_relaxed); }

 private:
  static inline constinit std::atomic<std::uint32_t> process_{1};  // how many forks this process is from the first, + 1
  std::atomic<std::uint32_t> held_{0};
};

}  // namespace ewarp::llp
