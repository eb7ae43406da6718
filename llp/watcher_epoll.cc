// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <ctime>
#include <deque>
#include <limits>
#include <vector>

#include "llp/fd.h"
#include "llp/watcher_impl.h"

namespace ewarp::llp {

namespace {

static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLERR == POLLERR && EPOLLHUP == POLLHUP);

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kWake = ~std::uint64_t{0};

struct Slot {
  std::uint64_t token = 0;
  std::uint32_t sequence = 0;  // of its newest arming
  bool armed = false;
  bool added = false;  // epoll knows the fd (perhaps no longer, if it was closed without disarm())
};

class EpollWatcher final : public Watcher {
 public:
  explicit EpollWatcher(WakeUp* wake_up)
      : own_(wake_up == nullptr ? std::make_unique<WakeUp>() : nullptr),
        wake_up_(wake_up == nullptr ? *own_ : *wake_up),
        fd_(make_high_fd([] { return epoll_create1(EPOLL_CLOEXEC); })) {}
  ~EpollWatcher() override {
    if (fd_ >= 0) close_fd(fd_);
  }

  int open();
  void arm(int fd, std::uint32_t events, std::uint64_t token) override;
  void disarm(int fd) override;
  std::size_t wait(std::span<Ready> out, std::chrono::nanoseconds timeout) override;
  void wake() override { wake_up_.wake(); }
  const char* name() const override { return "epoll"; }
  void close_in_child() override;

 private:
  static constexpr std::size_t kEvents = 256;

  Slot& slot(int fd);
  int sleep(int capacity, std::chrono::nanoseconds timeout);
  int sleep_whole(int capacity, std::chrono::nanoseconds timeout);
  std::size_t report_refused(std::span<Ready> out);
  bool take(const epoll_event& event, Ready& out, bool* woken);

  const std::unique_ptr<WakeUp> own_;
  WakeUp& wake_up_;
  int fd_;
  std::deque<Slot> slots_;    // by fd
  std::vector<int> refused_;  // fds that epoll would not take
  std::array<epoll_event, kEvents> events_;
  bool has_pwait2_ = true;
};

int EpollWatcher::open() {
  if (fd_ < 0 || wake_up_.fd() < 0) return -EMFILE;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = kWake;
  return epoll_ctl(fd_, EPOLL_CTL_ADD, wake_up_.fd(), &event) == 0 ? 0 : -errno;
}

Slot& EpollWatcher::slot(int fd) {
  const auto at = static_cast<std::size_t>(fd);
  if (at >= slots_.size()) slots_.resize(at + 1);
  return slots_[at];
}

void EpollWatcher::arm(int fd, std::uint32_t events, std::uint64_t token) {
  Slot& s = slot(fd);
  s.token = token;
  s.armed = true;
  epoll_event event{};
  event.events = events | EPOLLONESHOT;
  event.data.u64 = std::uint64_t{++s.sequence} << 32 | static_cast<std::uint32_t>(fd);
  int rc = epoll_ctl(fd_, s.added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
  // The fd was closed behind our back, or it is still there.
  if (rc < 0 && errno == ENOENT) rc = epoll_ctl(fd_, EPOLL_CTL_ADD, fd, &event);
  if (rc < 0 && errno == EEXIST) rc = epoll_ctl(fd_, EPOLL_CTL_MOD, fd, &event);
  s.added = rc == 0;
  if (rc < 0) refused_.push_back(fd);
}

void EpollWatcher::disarm(int fd) {
  Slot& s = slot(fd);
  if (s.added) epoll_ctl(fd_, EPOLL_CTL_DEL, fd, nullptr);
  s.added = false;
  s.armed = false;
}

// A bad fd is told as an error on it, as io_uring does.
std::size_t EpollWatcher::report_refused(std::span<Ready> out) {
  std::size_t ready = 0;
  while (!refused_.empty() && ready < out.size()) {
    Slot& s = slot(refused_.back());
    refused_.pop_back();
    if (!s.armed || s.added) continue;
    s.armed = false;
    out[ready++] = {s.token, POLLERR};
  }
  return ready;
}

int EpollWatcher::sleep(int capacity, std::chrono::nanoseconds timeout) {
  if (has_pwait2_) {
    const timespec at_most{static_cast<std::time_t>(timeout.count() / 1'000'000'000), timeout.count() % 1'000'000'000};
    const int n = epoll_pwait2(fd_, events_.data(), capacity, timeout.count() < 0 ? nullptr : &at_most, nullptr);
    if (n >= 0 || (errno != ENOSYS && errno != EPERM)) return n;
    has_pwait2_ = false;  // an older sandbox
  }
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  const auto most = std::int64_t{std::numeric_limits<int>::max()};
  return epoll_wait(fd_, events_.data(), capacity, timeout.count() < 0 ? -1 : static_cast<int>(std::min(ms, most)));
}

bool EpollWatcher::take(const epoll_event& event, Ready& out, bool* woken) {
  if (event.data.u64 == kWake) {
    *woken = true;
    return false;
  }
  Slot& s = slot(static_cast<int>(static_cast<std::uint32_t>(event.data.u64)));
  if (!s.armed || s.sequence != static_cast<std::uint32_t>(event.data.u64 >> 32)) return false;
  s.armed = false;
  out = {s.token, event.events};
  return true;
}

int EpollWatcher::sleep_whole(int capacity, std::chrono::nanoseconds timeout) {
  const auto start = Clock::now();
  for (auto left = timeout;;) {
    const int n = sleep(capacity, left);
    if (n >= 0 || errno != EINTR) return n;
    if (timeout.count() >= 0) left = std::max(timeout - (Clock::now() - start), std::chrono::nanoseconds{0});
  }
}

std::size_t EpollWatcher::wait(std::span<Ready> out, std::chrono::nanoseconds timeout) {
  assert(!out.empty());
  const std::size_t refused = report_refused(out);
  if (refused > 0) return refused;
  const int n = sleep_whole(static_cast<int>(std::min(out.size(), kEvents)), timeout);
  if (n < 0) nap(timeout);
  std::size_t ready = 0;
  bool woken = false;
  for (int i = 0; i < n; ++i)
    if (take(events_[static_cast<std::size_t>(i)], out[ready], &woken)) ++ready;
  if (woken) wake_up_.seen();
  return ready;
}

void EpollWatcher::close_in_child() {
  if (fd_ >= 0) close_fd(fd_);
  fd_ = -1;
  wake_up_.close_in_child();
}

}  // namespace

std::unique_ptr<Watcher> make_epoll_watcher(int* error, WakeUp* wake_up) {
  auto watcher = std::make_unique<EpollWatcher>(wake_up);
  *error = watcher->open();
  if (*error < 0) return nullptr;
  return watcher;
}

}  // namespace ewarp::llp
