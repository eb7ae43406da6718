// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/waiter.h"

#include <rdma/fi_errno.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cassert>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "llp/clock.h"

namespace ewarp::ofi {
namespace {

// Where another CPU may do the work meanwhile.
std::uint64_t spin_ns() {
  static const std::uint64_t ns = [] {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 1 ? 50'000u : 0u;
  }();
  return ns;
}

}  // namespace

void Sources::add(channel::Endpoint& endpoint) {
  const llp::Guard lock(mutex_);
  if (std::find(endpoints_.begin(), endpoints_.end(), &endpoint) == endpoints_.end()) endpoints_.push_back(&endpoint);
}

void Sources::remove(channel::Endpoint& endpoint) {
  const llp::Guard lock(mutex_);
  std::erase(endpoints_, &endpoint);
}

void Sources::poll() {
  if (!mutex_.try_lock()) return;
  const llp::Guard lock(mutex_, std::adopt_lock);
  for (channel::Endpoint* e : endpoints_) e->progress();
}

bool Sources::rest() {
  const llp::Guard lock(mutex_);
  return std::all_of(endpoints_.begin(), endpoints_.end(), [](channel::Endpoint* e) { return e->rest(); });
}

Waiter::~Waiter() {
  if (fd_ >= 0) close(fd_);
}

bool Waiter::open() {
  assert(!is_open());
  fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return fd_ >= 0;
}

// Whoever takes the mark counts a wake-up behind it, so none is missed from here on.
std::uint64_t Waiter::arm() {
  const llp::Guard lock(mutex_);
  armed_.fetch_or(kThreads);
  return wakeups_;
}

void Waiter::sleep_since(std::uint64_t wakeups, int timeout_ms) {
  const llp::Guard lock(mutex_);
  if (wakeups_ != wakeups) return;
  if (timeout_ms < 0)
    woken_.wait(mutex_);
  else
    woken_.wait_for(mutex_, std::chrono::milliseconds(timeout_ms));
}

void Waiter::clear_descriptor() {
  eventfd_t ignored;
  eventfd_read(fd_, &ignored);
  armed_.fetch_or(kDescriptor);
}

void Waiter::signal() {
  const unsigned armed = armed_.exchange(0);
  if ((armed & kThreads) != 0) {
    {
      const llp::Guard lock(mutex_);
      ++wakeups_;
    }
    woken_.notify_all();
  }
  if ((armed & kDescriptor) != 0) eventfd_write(fd_, 1);
}

Deadline::Deadline(int timeout_ms) : began_ns_(monotonic_ns()), timeout_ms_(timeout_ms) {}

int Deadline::left_ms() const {
  if (timeout_ms_ < 0) return -1;
  const std::uint64_t spent = (monotonic_ns() - began_ns_) / 1'000'000;
  return spent >= static_cast<std::uint64_t>(timeout_ms_) ? 0 : timeout_ms_ - static_cast<int>(spent);
}

bool Deadline::may_spin() const {
  return monotonic_ns() - began_ns_ < spin_ns();
}

int wait_control(int fd, fi_wait_obj object, int command, void* argument) {
  switch (command) {
    case FI_GETWAIT:
      if (object != FI_WAIT_FD) return -FI_ENODATA;
      *static_cast<int*>(argument) = fd;
      return 0;
    case FI_GETWAITOBJ:
      *static_cast<fi_wait_obj*>(argument) = object;
      return 0;
    default:
      return -FI_ENOSYS;
  }
}

const char* copy_text(const char* text, char* buffer, std::size_t length) {
  if (buffer != nullptr && length > 0) {
    std::strncpy(buffer, text, length - 1);
    buffer[length - 1] = '\0';
  }
  return text;
}

}  // namespace ewarp::ofi
