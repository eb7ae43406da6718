// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/device/event_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>

#include "llp/fd.h"
#include "llp/mutex.h"
#include "provider/engine/reactor.h"
#include "provider/engine/shortage.h"

namespace ewarp::verbs {
namespace {

// Raw system calls: write(), read() and splice() are cancellation points, and a thread that is cancelled here would
// leave with the mutex held.
ssize_t raw_write(int fd, const void* data, std::size_t size) {
  return syscall(SYS_write, fd, data, size);
}
ssize_t raw_read(int fd, void* data, std::size_t size) {
  ssize_t n;
  do n = syscall(SYS_read, fd, data, size);
  while (n < 0 && errno == EINTR);
  return n;
}
ssize_t raw_splice(int from, int to, std::size_t size) {
  return syscall(SYS_splice, from, nullptr, to, nullptr, size, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
}
void raw_close(int fd) {
  if (fd >= 0) syscall(SYS_close, fd);
}

bool make_pipe(int (&ends)[2]) {
  if (pipe2(ends, O_CLOEXEC) == 0) return true;
  return errno == EMFILE && llp::raise_fd_limit() && pipe2(ends, O_CLOEXEC) == 0;
}

bool set_nonblocking(int fd) {
  return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0;
}

std::uint64_t handle_of(const std::byte* record) {
  std::uint64_t handle;
  std::memcpy(&handle, record, sizeof handle);
  return handle;
}

}  // namespace

std::shared_ptr<EventChannel> EventChannel::create(std::size_t record_octets, int* error) {
  int ends[2];
  if (!make_pipe(ends)) {
    *error = errno;
    return nullptr;
  }
  const int read_fd = llp::high_fd(ends[0]);
  const int write_fd = llp::high_fd(ends[1]);
  int own_read_fd = fcntl(read_fd, F_DUPFD_CLOEXEC, read_fd);
  if (own_read_fd < 0 && llp::raise_fd_limit()) own_read_fd = fcntl(read_fd, F_DUPFD_CLOEXEC, read_fd);
  std::unique_ptr<EventChannel> channel;
  *error = own_read_fd < 0 || !set_nonblocking(write_fd) ? errno : 0;
  if (*error == 0) {
    try {
      channel.reset(new EventChannel(read_fd, own_read_fd, write_fd, record_octets));
      return channel;  // it has the descriptors, whether or not there is memory to share it
    } catch (const std::bad_alloc&) {
      *error = ENOMEM;
    }
    if (channel != nullptr) return nullptr;
  }
  for (const int fd : {read_fd, write_fd, own_read_fd}) raw_close(fd);
  return nullptr;
}

EventChannel::~EventChannel() {
  if (watching_) reactor().unwatch(write_fd_);
  raw_close(write_fd_);
  raw_close(own_read_fd_);
  if (owns_read_fd_) raw_close(read_fd_);
}

// False only where there is no room.
bool EventChannel::write_one(const Record& record) {
  for (;;) {
    if (raw_write(write_fd_, record.data(), record_) >= 0) return true;
    if (errno == EINTR) continue;
    return errno != EAGAIN;  // whatever else it is, trying again will not help
  }
}

void EventChannel::post(Octets record) {
  assert(record.size() == record_);
  bool must_watch = false;
  {
    const llp::Guard lock(mutex_);
    if (write_fd_ < 0) return;
    Record r{};
    std::memcpy(r.data(), record.data(), record_);
    if (backlog_.empty() && write_one(r)) return;
    backlog_.push_back(r);
    must_watch = !watching_;
    watching_ = true;
  }
  if (must_watch) watch_for_room();
}

void EventChannel::watch_for_room() {
  if (reactor().start() != 0) {  // the next record tries again
    const llp::Guard lock(mutex_);
    watching_ = false;
    return;
  }
  reactor().watch(write_fd_, POLLOUT, [weak = weak_from_this()](std::uint32_t) {
    if (const auto channel = weak.lock()) channel->flush();
  });
}

bool EventChannel::flush_locked() {
  while (!backlog_.empty() && write_one(backlog_.front())) backlog_.pop_front();
  return !backlog_.empty();
}

bool EventChannel::flush() {
  bool waiting, must_watch;
  {
    const llp::Guard lock(mutex_);
    if (write_fd_ < 0) return false;
    waiting = flush_locked();
    must_watch = waiting && watching_;  // a watch is one-shot
    watching_ = waiting;
  }
  if (must_watch) watch_for_room();
  return waiting;
}

// The read end may be in blocking mode, and the application may take the last record between a look and a read: so the
// records are moved by splice(), which can be told not to wait, into a pipe that nobody else reads. False: no such
// pipe.
bool EventChannel::take_unread_into(std::vector<std::byte>& out) {
  int scratch[2];
  if (!make_pipe(scratch)) return false;
  set_nonblocking(scratch[0]);
  std::array<std::byte, 4096> chunk;
  // All at once, under the kernel's lock of the pipe: a reader cannot take a later record in between.
  constexpr std::size_t kWholePipe = 1 << 20;
  while (raw_splice(own_read_fd_, scratch[1], kWholePipe) > 0) {
    ssize_t n;
    while ((n = raw_read(scratch[0], chunk.data(), chunk.size())) > 0)
      out.insert(out.end(), chunk.data(), chunk.data() + n);
  }
  raw_close(scratch[0]);
  raw_close(scratch[1]);
  return true;
}

std::vector<std::byte> EventChannel::take_unread() {
  std::vector<std::byte> out;
  int unread = 0;
  if (ioctl(own_read_fd_, FIONREAD, &unread) != 0 || unread <= 0) return out;
  if (take_unread_into(out)) return out;
  // Not one descriptor left. A kernel before Linux 6.4 cannot be told not to wait: there the read does, if the
  // application reads at this very moment. A record left behind would name an object that is gone.
  out.resize(static_cast<std::size_t>(unread));
  const iovec into{out.data(), out.size()};
  ssize_t n = syscall(SYS_preadv2, own_read_fd_, &into, 1, -1L, -1L, RWF_NOWAIT);
  if (n < 0 && errno == EOPNOTSUPP) n = raw_read(own_read_fd_, out.data(), out.size());
  out.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return out;
}

// Requires: the pipe has just been emptied, so that what was in it fits again.
void EventChannel::rewrite(Octets kept) {
  while (!kept.empty()) {
    const ssize_t n = raw_write(write_fd_, kept.data(), kept.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    kept = kept.subspan(static_cast<std::size_t>(n));
  }
}

std::size_t EventChannel::purge(std::uint64_t handle) {
  const shortage::Scope patience;  // what was taken out of the pipe must not get lost
  const llp::Guard lock(mutex_);
  if (write_fd_ < 0) return 0;
  const auto unread = take_unread();
  std::vector<std::byte> kept;
  kept.reserve(unread.size());
  // Whole records only, unless the reader took part of one: the rest of that stays in front.
  const std::size_t torn = unread.size() % record_;
  kept.insert(kept.end(), unread.begin(), unread.begin() + static_cast<std::ptrdiff_t>(torn));
  std::size_t removed = 0;
  for (std::size_t at = torn; at < unread.size(); at += record_) {
    if (handle_of(&unread[at]) == handle)
      ++removed;
    else
      kept.insert(kept.end(), &unread[at], &unread[at] + record_);
  }
  rewrite(kept);
  removed += std::erase_if(backlog_, [&](const Record& r) { return handle_of(r.data()) == handle; });
  flush_locked();
  return removed;
}

void EventChannel::close_in_child() EWARP_NO_LOCK_ANALYSIS {
  mutex_.renew_in_child();  // a thread that exists in the parent only may have held it
  raw_close(write_fd_);
  raw_close(own_read_fd_);
  write_fd_ = own_read_fd_ = -1;
  watching_ = false;
  // What another thread was doing to the backlog is unknown: it is left as it is, and never looked at again.
}

}  // namespace ewarp::verbs
