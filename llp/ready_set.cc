// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/ready_set.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>

#include "llp/fd.h"

namespace ewarp::llp {

static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLERR == POLLERR && EPOLLHUP == POLLHUP);

int ReadySet::open() {
  assert(!is_open());
  fd_ = make_high_fd([] { return epoll_create1(EPOLL_CLOEXEC); });
  return is_open() ? 0 : errno;
}

void ReadySet::close() {
  if (is_open()) syscall(SYS_close, fd_);
  fd_ = -1;
}

int ReadySet::control(int operation, int fd, std::uint32_t events, void* owner) {
  assert(is_open() && (events & ~std::uint32_t{POLLIN | POLLOUT}) == 0);
  epoll_event event{};
  event.events = events;
  event.data.ptr = owner;
  return epoll_ctl(fd_, operation, fd, &event) == 0 ? 0 : errno;
}

int ReadySet::add(int fd, std::uint32_t events, void* owner) {
  return control(EPOLL_CTL_ADD, fd, events, owner);
}

int ReadySet::change(int fd, std::uint32_t events, void* owner) {
  return control(EPOLL_CTL_MOD, fd, events, owner);
}

void ReadySet::remove(int fd) {
  epoll_event ignored{};
  if (is_open()) epoll_ctl(fd_, EPOLL_CTL_DEL, fd, &ignored);
}

std::size_t ReadySet::collect(std::span<void*> out) {
  assert(is_open() && out.size() <= kMost);
  std::array<epoll_event, kMost> events;
  // Not epoll_wait(), which is a cancellation point.
  const long n = syscall(SYS_epoll_pwait, fd_, events.data(), static_cast<int>(out.size()), 0, nullptr, 8);
  for (long i = 0; i < n; ++i) out[static_cast<std::size_t>(i)] = events[static_cast<std::size_t>(i)].data.ptr;
  return n < 0 ? 0 : static_cast<std::size_t>(n);
}

}  // namespace ewarp::llp
