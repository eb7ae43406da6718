// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/wait_set.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <memory>

#include "mpi_shim/ofi/counter.h"
#include "mpi_shim/ofi/fid.h"
#include "mpi_shim/ofi/waiter.h"

namespace ewarp::ofi {

WaitSet::WaitSet(Fabric& fabric, fi_wait_obj wait, void* context_) : wait_object(wait), fabric_(fabric) {
  fid = {.fclass = FI_CLASS_WAIT, .context = context_, .ops = nullptr};
  ++fabric_.users;
}

WaitSet::~WaitSet() {
  if (fd_ >= 0) close(fd_);
  --fabric_.users;
}

bool WaitSet::open() {
  assert(fd_ < 0);
  fd_ = epoll_create1(EPOLL_CLOEXEC);
  return fd_ >= 0;
}

bool WaitSet::has_members() {
  const llp::Guard lock(mutex_);
  return !members_.empty();
}

bool WaitSet::add(struct fid& member, int fd) {
  const llp::Guard lock(mutex_);
  members_.emplace_back(member);
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (epoll_ctl(fd_, EPOLL_CTL_ADD, fd, &event) == 0) return true;
  members_.pop_back();
  return false;
}

void WaitSet::remove(const struct fid& member, int fd) {
  const llp::Guard lock(mutex_);
  epoll_ctl(fd_, EPOLL_CTL_DEL, fd, nullptr);
  std::erase_if(members_, [&](const Watched& w) { return &w.what() == &member; });
}

void WaitSet::progress() {
  const llp::Guard lock(mutex_);
  for (Watched& w : members_) w.progress();
}

// All are asked: what a counter tells here, it tells once.
bool WaitSet::has_news() {
  const llp::Guard lock(mutex_);
  bool some = false;
  for (Watched& w : members_) some = w.has_news() || some;
  return some;
}

bool WaitSet::arm() {
  const llp::Guard lock(mutex_);
  return std::all_of(members_.begin(), members_.end(), [](Watched& w) { return w.prepare_to_sleep(); });
}

// What counters have counted is looked at last: their descriptors tell of what comes behind arm().
bool WaitSet::prepare_to_sleep() {
  return arm() && !has_news();
}

int WaitSet::wait(int timeout_ms) {
  const Deadline deadline(timeout_ms);
  for (;;) {
    progress();
    if (has_news()) return 0;
    const int left = deadline.left_ms();
    if (left == 0) return -FI_ETIMEDOUT;
    if (deadline.may_spin() || !arm()) continue;
    if (has_news()) return 0;
    pollfd set{.fd = fd_, .events = POLLIN, .revents = 0};
    ::poll(&set, 1, left);
  }
}

Membership::~Membership() {
  if (set_ != nullptr) set_->remove(*member_, fd_);
}

int Membership::join(fi_wait_obj wanted, fid_wait* set, struct fid& member, int fd) {
  if (wanted != FI_WAIT_SET) return 0;
  if (set == nullptr) return -FI_EINVAL;
  WaitSet& to = WaitSet::from(set);
  if (!to.add(member, fd)) return -FI_ENOMEM;
  set_ = &to;
  member_ = &member;
  fd_ = fd;
  return 0;
}

namespace {

bool try_wait(struct fid* f) {
  switch (f->fclass) {
    case FI_CLASS_WAIT:
      return object<WaitSet, fid_wait>(f).prepare_to_sleep();
    case FI_CLASS_CNTR:
      return object<Counter, fid_cntr>(f).try_wait();
    default:
      return Watched(*f).prepare_to_sleep();
  }
}

}  // namespace

int try_wait(fid_fabric*, fid** fids, int count) noexcept {
  for (int i = 0; i < count; ++i) {
    if (fids[i]->fclass != FI_CLASS_WAIT && !Watched::is_possible(*fids[i])) return -FI_EINVAL;
    if (!try_wait(fids[i])) return -FI_EAGAIN;
  }
  return 0;
}

namespace {

int wait(fid_wait* s, int timeout) {
  return WaitSet::from(s).wait(timeout);
}

int close_set(struct fid* f) {
  auto& s = object<WaitSet, fid_wait>(f);
  if (s.has_members()) return -FI_EBUSY;
  delete &s;
  return 0;
}

int control(struct fid* f, int command, void* argument) {
  auto& s = object<WaitSet, fid_wait>(f);
  return wait_control(s.fd(), s.wait_object, command, argument);
}

fi_ops fid_ops = {.size = sizeof(fi_ops),
                  .close = entry<close_set>,
                  .bind = kUnsupported,
                  .control = entry<control>,
                  .ops_open = kUnsupported,
                  .tostr = kUnsupported,
                  .ops_set = kUnsupported};

fi_ops_wait set_ops = {.size = sizeof(fi_ops_wait), .wait = entry<wait>};

}  // namespace

int open_wait_set(fid_fabric* fabric, fi_wait_attr* attributes, fid_wait** out) noexcept {
  return guarded([&] {
    const fi_wait_attr a = attributes != nullptr ? *attributes : fi_wait_attr{};
    if (a.flags != 0) return -FI_EINVAL;
    if (a.wait_obj != FI_WAIT_UNSPEC && a.wait_obj != FI_WAIT_FD) return -FI_ENOSYS;
    auto s = std::make_unique<WaitSet>(*static_cast<Fabric*>(fabric), FI_WAIT_FD, nullptr);
    if (!s->open()) return -FI_EMFILE;
    s->fid.ops = &fid_ops;
    s->ops = &set_ops;
    *out = s.release();
    return 0;
  });
}

}  // namespace ewarp::ofi
