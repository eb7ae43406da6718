// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/event_queue.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <memory>

#include "mpi_shim/ofi/error_entry.h"
#include "mpi_shim/ofi/fid.h"

namespace ewarp::ofi {

EventQueue::EventQueue(Fabric& fabric, fi_wait_obj wait, bool writable, void* context_)
    : wait_object(wait), fabric_(fabric), writable_(writable) {
  fid = {.fclass = FI_CLASS_EQ, .context = context_, .ops = nullptr};
  ++fabric_.users;
}

EventQueue::~EventQueue() {
  --fabric_.users;
}

void EventQueue::add(std::uint32_t event, const void* data, std::size_t length, bool is_error) {
  const auto* octets = static_cast<const std::byte*>(data);
  {
    const llp::Guard lock(mutex_);
    events_.push_back({.kind = event, .data = std::vector<std::byte>(octets, octets + length), .is_error = is_error});
  }
  waiter.wake();
}

ssize_t EventQueue::write(std::uint32_t event, const void* buffer, std::size_t length) {
  if (!writable_) return -FI_EINVAL;
  add(event, buffer, length, false);
  return static_cast<ssize_t>(length);
}

void EventQueue::tell(std::uint32_t event, const fi_eq_entry& entry) {
  add(event, &entry, sizeof entry, false);
}

void EventQueue::tell_error(const fi_eq_err_entry& error) {
  add(0, &error, sizeof error, true);
}

ssize_t EventQueue::read(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags) {
  const llp::Guard lock(mutex_);
  if (events_.empty()) return -FI_EAGAIN;
  const Event& e = events_.front();
  if (e.is_error) return -FI_EAVAIL;
  if (length < e.data.size()) return -FI_ETOOSMALL;
  *event = e.kind;
  std::copy(e.data.begin(), e.data.end(), static_cast<std::byte*>(buffer));
  const auto n = static_cast<ssize_t>(e.data.size());
  if ((flags & FI_PEEK) == 0) events_.pop_front();
  return n;
}

ssize_t EventQueue::read_error(fi_eq_err_entry* out, std::uint64_t flags) {
  const llp::Guard lock(mutex_);
  if (events_.empty() || !events_.front().is_error) return -FI_EAGAIN;
  fi_eq_err_entry error;
  assert(events_.front().data.size() == sizeof error);
  std::memcpy(&error, events_.front().data.data(), sizeof error);
  ofi::tell_error(error, out, fabric_.api_version);
  if ((flags & FI_PEEK) == 0) events_.pop_front();
  return sizeof *out;
}

bool EventQueue::has_some() {
  const llp::Guard lock(mutex_);
  return !events_.empty();
}

bool EventQueue::prepare_to_sleep() {
  return waiter.arm_descriptor([&] { return !has_some(); });
}

ssize_t EventQueue::read_waiting(std::uint32_t* event, void* buffer, std::size_t length, int timeout_ms,
                                 std::uint64_t flags) {
  if (wait_object != FI_WAIT_FD) return -FI_EINVAL;
  const Deadline deadline(timeout_ms);
  for (;;) {
    if (const ssize_t n = read(event, buffer, length, flags); n != -FI_EAGAIN) return n;
    const int left = deadline.left_ms();
    if (left == 0) return -FI_EAGAIN;
    waiter.sleep(left, [&] { return !has_some(); });
  }
}

namespace {

ssize_t read(fid_eq* q, uint32_t* event, void* buffer, size_t length, uint64_t flags) {
  return EventQueue::from(q).read(event, buffer, length, flags);
}

ssize_t read_error(fid_eq* q, fi_eq_err_entry* out, uint64_t flags) {
  return EventQueue::from(q).read_error(out, flags);
}

ssize_t write(fid_eq* q, uint32_t event, const void* buffer, size_t length, uint64_t) {
  return EventQueue::from(q).write(event, buffer, length);
}

ssize_t read_waiting(fid_eq* q, uint32_t* event, void* buffer, size_t length, int timeout, uint64_t flags) {
  return EventQueue::from(q).read_waiting(event, buffer, length, timeout, flags);
}

const char* error_text(fid_eq*, int code, const void*, char* buffer, size_t length) noexcept {
  const char* text = fi_strerror(code);
  return copy_text(text, buffer, length);
}

int close_queue(struct fid* f) {
  auto& q = object<EventQueue, fid_eq>(f);
  if (q.users.load() > 0) return -FI_EBUSY;
  delete &q;
  return 0;
}

int control(struct fid* f, int command, void* argument) {
  auto& q = object<EventQueue, fid_eq>(f);
  return wait_control(q.waiter.fd(), q.wait_object, command, argument);
}

fi_ops fid_ops = {.size = sizeof(fi_ops),
                  .close = entry<close_queue>,
                  .bind = kUnsupported,
                  .control = entry<control>,
                  .ops_open = kUnsupported,
                  .tostr = kUnsupported,
                  .ops_set = kUnsupported};

fi_ops_eq queue_ops = {.size = sizeof(fi_ops_eq),
                       .read = entry<read>,
                       .readerr = entry<read_error>,
                       .write = entry<write>,
                       .sread = entry<read_waiting>,
                       .strerror = error_text};

}  // namespace

int open_event_queue(fid_fabric* fabric, fi_eq_attr* attributes, fid_eq** out, void* context) noexcept {
  return guarded([&] {
    fi_eq_attr a = attributes != nullptr ? *attributes : fi_eq_attr{};
    a.wait_obj = waited_for_by(a.wait_obj);
    if (a.wait_obj > FI_WAIT_FD) return -FI_ENOSYS;
    auto q =
        std::make_unique<EventQueue>(*static_cast<Fabric*>(fabric), a.wait_obj, (a.flags & FI_WRITE) != 0, context);
    if (a.wait_obj != FI_WAIT_NONE && !q->waiter.open()) return -FI_EMFILE;
    if (const int error = q->membership.join(a.wait_obj, a.wait_set, q->fid, q->waiter.fd()); error != 0) return error;
    q->fid.ops = &fid_ops;
    q->ops = &queue_ops;
    *out = q.release();
    return 0;
  });
}

}  // namespace ewarp::ofi
