// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What completion queues and counters have in common: the endpoints that fill them, and threads that sleep until they
// do.
//
// Threading: every function may be called by any thread at any time.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include <atomic>
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

// An event descriptor that is written to only where somebody said that he would sleep.
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
  // From here on wake() makes the descriptor readable. Whoever arms looks once more for what he waits for.
  void arm();
  void wake() {
    if (armed_.load()) signal();
  }
  // Until the descriptor is readable, or so many milliseconds (negative: without end).
  void sleep(int timeout_ms);

 private:
  void signal();
  int fd_ = -1;
  std::atomic<bool> armed_{false};
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
