// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What completion queues and counters have in common: the endpoints that fill them, and threads that sleep until they
// do.
//
// Threading: every function may be called by any thread at any time.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <vector>

#include "llp/annotations.h"
#include "llp/mutex.h"
#include "mpi_shim/channel/channel.h"

namespace ewarp::ofi {

// Endpoints that have to be polled for the sake of one queue.
class Sources {
 public:
  void add(channel::Endpoint& endpoint);
  // Nobody polls it any more when this returns.
  void remove(channel::Endpoint& endpoint);
  // Does nothing if another thread is at it.
  void poll();
  // True: all the progress threads take care of what comes.
  bool rest();

 private:
  llp::Mutex mutex_;
  std::vector<channel::Endpoint*> endpoints_ EWARP_GUARDED_BY(mutex_);
};

// Threads that sleep here, and an event descriptor for those that sleep elsewhere. Nobody is woken but where somebody
// said that he would sleep.
class Waiter {
 public:
  Waiter() = default;
  ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // False: there is no descriptor to be had.
  bool open();
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  // All who sleep.
  void wake() {
    if (armed_.load() != 0) signal();
  }
  // Until wake() or so many milliseconds later (negative: without end), or for less. may_sleep() looks once more for
  // what is waited for; where it is false nobody sleeps.
  template <class F>
  void sleep(int timeout_ms, F may_sleep) {
    const std::uint64_t before = arm();
    if (may_sleep()) sleep_since(before, timeout_ms);
  }
  // From here on wake() makes the descriptor readable, which it is not now. False: there is no descriptor, or
  // may_sleep() is false. The descriptor is readable again then, for others that sleep on it.
  template <class F>
  bool arm_descriptor(F may_sleep) {
    if (!is_open()) return false;
    clear_descriptor();
    if (may_sleep()) return true;
    wake();
    return false;
  }

 private:
  // What wake() has to do.
  static constexpr unsigned kThreads = 1, kDescriptor = 2;

  // How many wake-ups there were before.
  std::uint64_t arm();
  void sleep_since(std::uint64_t wakeups, int timeout_ms);
  void clear_descriptor();
  void signal();

  int fd_ = -1;
  std::atomic<unsigned> armed_{0};
  llp::Mutex mutex_;  // taken under endpoints' locks
  // A number, so that no thread takes the wake-up of another.
  std::uint64_t wakeups_ EWARP_GUARDED_BY(mutex_) = 0;
  std::condition_variable_any woken_;
};

// Milliseconds of a timeout that are left.
class Deadline {
 public:
  explicit Deadline(int timeout_ms);
  int left_ms() const;  // -1: without end
  // Worth polling for a little before sleeping.
  bool may_spin() const;

 private:
  std::uint64_t began_ns_;
  int timeout_ms_;
};

// The wait object of who names none in particular.
inline fi_wait_obj waited_for_by(fi_wait_obj wanted) {
  return wanted == FI_WAIT_UNSPEC ? FI_WAIT_FD : wanted;
}

// FI_GETWAIT and FI_GETWAITOBJ of an object that has this wait object and descriptor.
int wait_control(int fd, fi_wait_obj object, int command, void* argument);

// A text for fi_cq_strerror() and its kin, in the caller's buffer, too, if he has one.
const char* copy_text(const char* text, char* buffer, std::size_t length);

}  // namespace ewarp::ofi
