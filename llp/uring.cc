// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/uring.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "llp/fd.h"

namespace ewarp::llp {

namespace {

// A sandbox may allow the set-up and forbid the rest: an enter that does nothing shows it.
int probe_enter(int fd) {
  const int rc = io_uring_enter(static_cast<unsigned>(fd), 0, 0, 0, nullptr);
  return rc == -EPERM || rc == -ENOSYS ? rc : 0;  // -EBADFD: a ring that is created disabled
}

}  // namespace

Uring::~Uring() {
  close(true);
}

void Uring::close(bool fd_is_ours) {
  if (!open_) return;
  if (!fd_is_ours) ring_.ring_fd = -1;
  io_uring_queue_exit(&ring_);
  open_ = false;
}

int Uring::open(unsigned entries, unsigned cq_entries, unsigned flags) {
  io_uring_params params{};
  params.flags = flags | IORING_SETUP_CQSIZE;
  params.cq_entries = cq_entries;
  io_uring_params used = params;
  int rc = io_uring_queue_init_params(entries, &ring_, &used);
  if (rc == -EMFILE && raise_fd_limit()) {
    used = params;
    rc = io_uring_queue_init_params(entries, &ring_, &used);
  }
  if (rc < 0) return rc;
  open_ = true;
  ring_.ring_fd = ring_.enter_ring_fd = high_fd(ring_.ring_fd);
  rc = probe_enter(ring_.ring_fd);
  if (rc == 0) rc = io_uring_ring_dontfork(&ring_);
  if (rc < 0) {
    io_uring_queue_exit(&ring_);
    open_ = false;
  }
  return rc;
}

io_uring_sqe* Uring::next_sqe() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  if (sqe != nullptr) return sqe;
  io_uring_submit(&ring_);
  return io_uring_get_sqe(&ring_);
}

void Uring::close_in_child() {
  if (open_) ::close(ring_.ring_fd);
  open_ = false;
}

std::string why_no_uring(int error) {
  switch (error) {
    case -ENOSYS:
      return "the kernel has no io_uring";
    case -EPERM:
    case -EACCES:
      return "io_uring is forbidden here (a seccomp profile, or the sysctl kernel.io_uring_disabled)";
    case -EMFILE:
    case -ENFILE:
      return "no file descriptor left for io_uring (ulimit -n)";
    default:
      return "io_uring cannot be set up: " + std::generic_category().message(-error);
  }
}

}  // namespace ewarp::llp
