// A lock for sections of a few instructions that never cover a system call or an allocation.
#pragma once

#include <sched.h>

#include <atomic>

namespace ewarp::llp {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Spinlock {
 public:
  void lock() {
    for (unsigned spins = 0; !try_lock();) {
      // The holder may have lost its CPU: give it ours after a while.
      if (++spins % 256 == 0)
        sched_yield();
      else
        cpu_relax();
    }
  }
  bool try_lock() {
    return !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire);
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace ewarp::llp
