// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <algorithm>
#include <cassert>
#include <cerrno>
#include <deque>
#include <utility>
#include <vector>

#include "llp/uring.h"
#include "llp/watcher_impl.h"

namespace ewarp::llp {

namespace {

using Clock = std::chrono::steady_clock;

// 1000 fds armed together are one submission.
constexpr unsigned kEntries = 1024;
constexpr unsigned kCqEntries = 4096;

// user_data: the fd in the low half, the number of its arming in the high half; an fd is never negative.
constexpr std::uint64_t kWake = ~std::uint64_t{0};
constexpr std::uint64_t kRemoval = ~std::uint64_t{1};

constexpr std::uint64_t user_data_of(int fd, std::uint32_t sequence) {
  return std::uint64_t{sequence} << 32 | static_cast<std::uint32_t>(fd);
}

// What the caller wants is noted when it asks, and told to the kernel in wait().
struct Slot {
  std::uint64_t token = 0;
  std::uint32_t events = 0;
  std::uint32_t sequence = 0;     // of the newest poll given to the kernel
  std::uint32_t live_events = 0;  // of that poll
  bool armed = false;             // the caller waits for it
  bool live = false;              // the kernel has a poll for it that has not been reaped
  bool queued = false;            // stands in arms_
};

// When the ring fails for good, a watcher on epoll takes its place behind the same object: who calls wake() meanwhile
// finds the eventfd that both wait for.
class UringWatcher final : public Watcher {
 public:
  explicit UringWatcher(OnFallBack on_fall_back) : on_fall_back_(std::move(on_fall_back)) {
    arms_.reserve(kEntries);
    removals_.reserve(kEntries);
  }

  int open(bool single_issuer);
  void arm(int fd, std::uint32_t events, std::uint64_t token) override;
  void disarm(int fd) override;
  std::size_t wait(std::span<Ready> out, std::chrono::nanoseconds timeout) override;
  void wake() override { wake_up_.wake(); }
  const char* name() const override { return ring_.is_open() ? "io_uring" : "epoll"; }
  void close_in_child() override;

 private:
  struct Reaped {
    std::size_t ready = 0;
    bool woken = false;
  };
  Slot& slot(int fd);
  void drop(int fd, Slot& slot);
  int enable();
  bool is_lasting(int error);
  void give_up_ring(int error);
  std::size_t wait_without_ring(std::span<Ready> out, std::chrono::nanoseconds timeout);
  void queue_changes();
  void queue_wake_poll();
  int enter(std::chrono::nanoseconds left, bool forever);
  Reaped reap(std::span<Ready> out);
  bool take(const io_uring_cqe& cqe, Ready& out, bool* woken);

  WakeUp wake_up_;
  Uring ring_;
  std::deque<Slot> slots_;               // by fd; a deque grows without moving or freeing what it has
  std::vector<int> arms_;                // fds that may need a poll
  std::vector<std::uint64_t> removals_;  // user_data of polls to take back
  bool enabled_ = true;
  bool wake_armed_ = false;
  unsigned failures_ = 0;             // in a row
  std::unique_ptr<Watcher> instead_;  // once the ring is closed
  OnFallBack on_fall_back_;
};

int UringWatcher::open(bool single_issuer) {
  if (wake_up_.fd() < 0) return -EMFILE;
  // The ring is made disabled, because the thread that enables a single-issuer ring becomes its issuer: that has to be
  // the one that waits. Completions are then run only when that thread asks for them.
  constexpr unsigned kFlags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_R_DISABLED;
  int rc = single_issuer ? ring_.open(kEntries, kCqEntries, kFlags) : -EINVAL;
  if (rc == 0) enabled_ = false;
  if (rc == -EINVAL) rc = ring_.open(kEntries, kCqEntries, 0);
  return rc;
}

int UringWatcher::enable() {
  if (enabled_) return 0;
  // Not io_uring_enable_rings(): liburing 2.3 forgets to export it.
  const int fd = ring_.get()->ring_fd;
  const int rc = io_uring_register(static_cast<unsigned>(fd), IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
  enabled_ = rc >= 0;
  return std::min(rc, 0);
}

Slot& UringWatcher::slot(int fd) {
  const auto at = static_cast<std::size_t>(fd);
  if (at >= slots_.size()) slots_.resize(at + 1);
  return slots_[at];
}

// The poll in the kernel is for something else than what is wanted now. By its user_data, not by the fd: the number may
// soon belong to another file.
void UringWatcher::drop(int fd, Slot& slot) {
  if (!slot.live) return;
  removals_.push_back(user_data_of(fd, slot.sequence));
  slot.live = false;
}

void UringWatcher::arm(int fd, std::uint32_t events, std::uint64_t token) {
  if (instead_ != nullptr) return instead_->arm(fd, events, token);
  Slot& s = slot(fd);
  s.armed = true;
  s.token = token;
  s.events = events;
  if (s.live && s.live_events != events) drop(fd, s);
  if (s.live || s.queued) return;
  s.queued = true;
  arms_.push_back(fd);
}

void UringWatcher::disarm(int fd) {
  if (instead_ != nullptr) return instead_->disarm(fd);
  Slot& s = slot(fd);
  s.armed = false;
  drop(fd, s);
}

void UringWatcher::queue_wake_poll() {
  if (wake_armed_) return;
  io_uring_sqe* sqe = ring_.next_sqe();
  if (sqe == nullptr) return;
  io_uring_prep_poll_multishot(sqe, wake_up_.fd(), POLLIN);
  io_uring_sqe_set_data64(sqe, kWake);
  wake_armed_ = true;
}

// First in, first out: sockets that are ready already are reported in this order, and a server's connection requests
// then come in the order of the client's connects (perftest with several QPs pairs them by it).
// What finds no room (the kernel is out of memory) stays in its list for the next wait().
void UringWatcher::queue_changes() {
  queue_wake_poll();
  std::size_t done = 0;
  for (; done < removals_.size(); ++done) {
    io_uring_sqe* sqe = ring_.next_sqe();
    if (sqe == nullptr) break;
    io_uring_prep_poll_remove(sqe, removals_[done]);
    io_uring_sqe_set_data64(sqe, kRemoval);
    sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
  }
  removals_.erase(removals_.begin(), removals_.begin() + static_cast<std::ptrdiff_t>(done));
  for (done = 0; done < arms_.size(); ++done) {
    const int fd = arms_[done];
    Slot& s = slot(fd);
    const bool needed = s.armed && !s.live;
    io_uring_sqe* sqe = needed ? ring_.next_sqe() : nullptr;
    if (needed && sqe == nullptr) break;
    s.queued = false;
    if (!needed) continue;
    io_uring_prep_poll_add(sqe, fd, s.events);
    io_uring_sqe_set_data64(sqe, user_data_of(fd, ++s.sequence));
    s.live = true;
    s.live_events = s.events;
  }
  arms_.erase(arms_.begin(), arms_.begin() + static_cast<std::ptrdiff_t>(done));
}

int UringWatcher::enter(std::chrono::nanoseconds left, bool forever) {
  if (forever) return io_uring_submit_and_wait(ring_.get(), 1);
  if (left.count() <= 0) return io_uring_submit_and_get_events(ring_.get());
  __kernel_timespec timeout{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
  io_uring_cqe* ignored = nullptr;
  return io_uring_submit_and_wait_timeout(ring_.get(), &ignored, 1, &timeout, nullptr);
}

// True if the completion is one to report. Those of polls that were taken back or replaced are not.
bool UringWatcher::take(const io_uring_cqe& cqe, Ready& out, bool* woken) {
  if (cqe.user_data == kWake) {
    if ((cqe.flags & IORING_CQE_F_MORE) == 0) wake_armed_ = false;
    *woken = true;
    return false;
  }
  if (cqe.user_data == kRemoval) return false;
  Slot& s = slot(static_cast<int>(static_cast<std::uint32_t>(cqe.user_data)));
  if (!s.live || s.sequence != static_cast<std::uint32_t>(cqe.user_data >> 32)) return false;
  s.live = false;
  s.armed = false;
  // A poll that failed (-EBADF: closed by somebody else) is an error on the fd: the next read of it says which.
  out = {s.token, cqe.res < 0 ? static_cast<std::uint32_t>(POLLERR) : static_cast<std::uint32_t>(cqe.res)};
  return true;
}

UringWatcher::Reaped UringWatcher::reap(std::span<Ready> out) {
  Reaped result;
  unsigned head = 0;
  unsigned seen = 0;
  io_uring_cqe* cqe = nullptr;
  io_uring_for_each_cqe(ring_.get(), head, cqe) {
    if (result.ready == out.size()) break;  // the rest waits in the ring, and may still be disarmed there
    if (take(*cqe, out[result.ready], &result.woken)) ++result.ready;
    ++seen;
  }
  io_uring_cq_advance(ring_.get(), seen);
  if (result.woken) wake_up_.seen();
  return result;
}

// What passes by itself (memory, room for completions) gets some tries; whoever waits sees nothing ready meanwhile.
bool UringWatcher::is_lasting(int error) {
  constexpr unsigned kTries = 64;
  ++failures_;
  return (error != -EAGAIN && error != -EBUSY && error != -ENOMEM) || failures_ >= kTries;
}

void UringWatcher::give_up_ring(int error) {
  // Closed first: its descriptor is then there for epoll.
  ring_.close(error != -EBADF && error != -EOPNOTSUPP);
  if (on_fall_back_) on_fall_back_(why_no_uring(error));
}

std::size_t UringWatcher::wait_without_ring(std::span<Ready> out, std::chrono::nanoseconds timeout) {
  if (instead_ == nullptr) {
    int error = 0;
    instead_ = make_epoll_watcher(&error, &wake_up_);
    if (instead_ == nullptr) {  // the next wait() tries again
      nap(timeout);
      return 0;
    }
    // Readiness that the ring had seen and not reported is seen again.
    for (std::size_t fd = 0; fd < slots_.size(); ++fd)
      if (slots_[fd].armed) instead_->arm(static_cast<int>(fd), slots_[fd].events, slots_[fd].token);
    slots_.clear();
    arms_.clear();
    removals_.clear();
  }
  return instead_->wait(out, timeout);
}

std::size_t UringWatcher::wait(std::span<Ready> out, std::chrono::nanoseconds timeout) {
  assert(!out.empty());
  if (!ring_.is_open()) return wait_without_ring(out, timeout);
  const bool forever = timeout.count() < 0;
  const auto start = forever || timeout.count() == 0 ? Clock::time_point{} : Clock::now();
  for (auto left = timeout;;) {
    int rc = enable();
    if (rc == 0) {
      queue_changes();
      rc = enter(left, forever);
    }
    const Reaped reaped = reap(out);
    if (rc >= 0 || rc == -ETIME || rc == -EINTR) {
      failures_ = 0;
    } else if (is_lasting(rc)) {
      give_up_ring(rc);
      return reaped.ready > 0 || reaped.woken ? reaped.ready : wait_without_ring(out, timeout);
    }
    if (reaped.ready > 0 || reaped.woken) return reaped.ready;
    if (rc < 0 && rc != -ETIME && rc != -EINTR) return 0;
    // Nothing but completions of polls taken back, so far; or a signal.
    if (forever) continue;
    if (timeout.count() == 0) return 0;
    left = timeout - (Clock::now() - start);
    if (left.count() <= 0) return 0;
  }
}

void UringWatcher::close_in_child() {
  ring_.close_in_child();
  if (instead_ != nullptr) instead_->close_in_child();
  wake_up_.close_in_child();
}

}  // namespace

std::unique_ptr<Watcher> make_uring_watcher(int* error, bool single_issuer, OnFallBack on_fall_back) {
  auto watcher = std::make_unique<UringWatcher>(std::move(on_fall_back));
  *error = watcher->open(single_issuer);
  if (*error < 0) return nullptr;
  return watcher;
}

}  // namespace ewarp::llp
