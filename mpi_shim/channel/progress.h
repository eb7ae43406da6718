// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The thread that does what protocols need while the application computes (after Majumder's event-driven LA-MPI).
//
// It sleeps on the adapter's events, and steps aside for threads that poll: while one is inside the library nothing is
// armed, so nothing wakes this one. A thread that leaves for long with a request that may need help arms the events
// again; from then on a control message costs one wake-up, of this thread. Waiting threads are woken only when their
// request is done.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "mpi_shim/channel/core/transport.h"

namespace ewarp::channel {

// What is driven. Each function takes the lock that it needs, and tells Progress::set_armed().
class Driven {
 public:
  virtual ~Driven() = default;
  // Handles what there is (connections: also what rdma_cm has to say, and what is due), arms, and wakes the threads
  // whose requests are done.
  virtual void drive(bool connections) = 0;
  // Takes the events that woke us. Nothing is armed afterwards. Takes no lock.
  virtual void take_events() = 0;
  virtual int completion_fd() const = 0;
  virtual int connection_fd() const = 0;
  // Whether something is under way that may need this thread. Takes no lock.
  virtual bool needs_help() = 0;
  // Milliseconds until drive() is wanted anyway.
  virtual int patience_ms() = 0;
};

class Progress {
 public:
  explicit Progress(Driven& driven) : driven_(driven) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // For wake(). False: no descriptor can be had.
  bool open();
  // False: no thread or no descriptor can be had.
  bool start();
  void stop();
  bool running() const { return thread_.joinable(); }

  // By application threads: one polls from here on ... until here.
  void enter() { inside_.fetch_add(1); }
  void leave() {
    application_cpu_.store(sched_getcpu(), std::memory_order_relaxed);
    inside_.fetch_sub(1);
  }
  // One polled the adapter: calls that do not are no reason to stay aside. Under the endpoint's lock only.
  void polled() { polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  // What raises an event when it comes next, or did so and was not taken yet. More under the endpoint's lock only.
  void set_armed(Wake armed) { armed_.store(armed); }
  Wake armed() const { return armed_.load(); }
  // Somebody relies on who sleeps on the adapter: this thread, or, where it does not run, whoever watches wake_fd().
  void wake();
  int wake_fd() const { return wake_fd_; }
  // By who was woken so.
  void take_wake();

  std::uint64_t wakeups() const { return wakeups_.load(); }
  std::uint64_t takeovers() const { return takeovers_.load(); }

 private:
  // While nothing is armed it looks now and then whether anybody still polls: in proportion to how long that was so, as
  // each look costs the CPU where it polls some 20 us.
  static constexpr std::uint64_t kLookForHelpNs = 200'000, kLookNs = 5'000'000, kLongestLookNs = 20'000'000;

  void run();
  std::uint64_t until_look();
  void keep_off_application();

  Driven& driven_;
  std::thread thread_;
  int wake_fd_ = -1;
  std::atomic<bool> stop_{false};
  std::atomic<Wake> armed_{Wake::nothing};
  std::atomic<int> inside_{0};
  std::atomic<int> application_cpu_{-1};  // where a thread was that left last
  cpu_set_t allowed_{};                   // to this thread, when it began
  int kept_off_ = -1;
  std::uint64_t look_ns_ = kLookNs;  // how long it sleeps until the next look
  std::atomic<std::uint64_t> polls_{0}, wakeups_{0}, takeovers_{0};
};

}  // namespace ewarp::channel
