// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two threads on one CPU: a SCHED_FIFO one that waits for a normal one, which runs only while the first does not.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

namespace ewarp::test {

inline std::chrono::nanoseconds thread_cpu_time() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

inline bool to_cpu(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

inline bool to_fifo() {
  const sched_param lowest{.sched_priority = sched_get_priority_min(SCHED_FIFO)};
  return pthread_setschedparam(pthread_self(), SCHED_FIFO, &lowest) == 0;
}

// Below it, a wait slept. Stolen time of a virtual machine may count; one that starves takes 950 ms of a second.
inline constexpr std::chrono::milliseconds kCheapWait{500};

// hold(): run by a normal thread, before the other one begins. let_go(): by the same thread after 20 ms of CPU time.
// wait(): by the SCHED_FIFO thread; returns after let_go(). The CPU time that it took: seconds where it starves the
// other thread (the kernel gives those 5 % beside real-time threads), next to nothing where it sleeps. Negative: this
// process may not have SCHED_FIFO threads.
template <class Hold, class LetGo, class Wait>
std::chrono::nanoseconds cost_of_waiting(Hold hold, LetGo let_go, Wait wait) {
  std::atomic<bool> held{false}, may_not{false};
  std::chrono::nanoseconds cost{-1};
  const int cpu = sched_getcpu();
  std::thread holder([&] {
    to_cpu(cpu);
    hold();
    held = true;
    const auto start = thread_cpu_time();
    while (thread_cpu_time() - start < std::chrono::milliseconds(20) && !may_not) {
    }
    let_go();
  });
  std::thread waiter([&] {
    while (!held) std::this_thread::sleep_for(std::chrono::microseconds(100));
    may_not = !to_cpu(cpu) || !to_fifo();
    if (may_not) return;
    const auto start = thread_cpu_time();
    wait();
    cost = thread_cpu_time() - start;
  });
  waiter.join();
  holder.join();
  return cost;
}

}  // namespace ewarp::test
