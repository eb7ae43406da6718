// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the two io_uring users of this layer share: a ring that was set up with care.
#pragma once

#include <liburing.h>

#include <string>

namespace ewarp::llp {

// Threading: none of its own. Neither copies nor moves.
class Uring {
 public:
  Uring() = default;
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;
  ~Uring();

  // Sets the ring up: fd out of the low numbers, mappings not inherited by children. 0, or a negative errno: -ENOSYS
  // and -EPERM where io_uring is not to be had, -EINVAL for flags that the kernel does not know.
  int open(unsigned entries, unsigned cq_entries, unsigned flags);
  bool is_open() const { return open_; }
  io_uring* get() { return &ring_; }

  // An entry to fill; submits what is queued when the ring is full. Null only when the kernel takes nothing.
  io_uring_sqe* next_sqe();
  // No more use of it. fd_is_ours: false when the program seems to have closed the fd behind our back; the number may
  // be another file's by now.
  void close(bool fd_is_ours);
  // The memory of the ring is not there in a child; only the fd is.
  void close_in_child();

 private:
  io_uring ring_{};
  bool open_ = false;
};

// One line for a person: why there is no io_uring. `error`: what Uring::open() returned.
std::string why_no_uring(int error);

}  // namespace ewarp::llp
