// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/watcher.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <system_error>
#include <utility>

#include "llp/fd.h"
#include "llp/uring.h"
#include "llp/watcher_impl.h"

namespace ewarp::llp {

WakeUp::WakeUp() : fd_(make_high_fd([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {}

WakeUp::~WakeUp() {
  if (fd_ >= 0) close_fd(fd_);
}

// Not eventfd_write(), which is a cancellation point: a thread that ended there would leave pending_ set, and nobody
// would write any more.
void WakeUp::wake() {
  if (pending_.exchange(true)) return;
  const int saved_errno = errno;
  const std::uint64_t one = 1;
  syscall(SYS_write, fd_, &one, sizeof one);
  errno = saved_errno;
}

void WakeUp::close_in_child() {
  if (fd_ >= 0) close_fd(fd_);
  fd_ = -1;
}

void nap(std::chrono::nanoseconds at_most) {
  constexpr std::chrono::nanoseconds kLongest = std::chrono::milliseconds(10);
  if (at_most.count() < 0 || at_most > kLongest) at_most = kLongest;
  const timespec time{0, static_cast<long>(at_most.count())};
  nanosleep(&time, nullptr);
}

std::unique_ptr<Watcher> make_watcher(bool use_io_uring, std::string* why_not, OnFallBack on_fall_back) {
  int error = 0;
  if (use_io_uring) {
    if (auto watcher = make_uring_watcher(&error, true, std::move(on_fall_back))) return watcher;
    if (why_not != nullptr) *why_not = why_no_uring(error);
  }
  auto watcher = make_epoll_watcher(&error);
  if (watcher == nullptr && why_not != nullptr)
    *why_not = "epoll cannot be set up: " + std::generic_category().message(-error);
  return watcher;
}

}  // namespace ewarp::llp
