// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/verbs/rc_queue.h"

#include <cassert>
#include <cerrno>
#include <utility>

namespace ewarp::acp {

bool RcQueue::is_atomic(const Post& p) {
  return p.what == Operation::add || p.what == Operation::swap_if || p.what == Operation::publish;
}

void RcQueue::push(RcSlot& slot) {
  assert(slot.post.lane == lane_);
  slot.next = nullptr;
  slot.error = 0;
  slot.requests = 0;
  (first_ == nullptr ? first_ : last_->next) = &slot;
  last_ = &slot;
  if (next_ == nullptr) next_ = &slot;
}

bool RcQueue::has_to_be_alone(const RcSlot& slot) const {
  return lane_ == Lane::accesses && (alone_ != 0 || is_atomic(slot.post) || is_atomic(first_->post));
}

RcSlot* RcQueue::next() const {
  assert(!broken_);
  if (next_ == nullptr || requests_ + requests_of(next_->post) > kDepth) return nullptr;
  if (next_->post.what == Operation::write_notice && notices_ == 0) return nullptr;
  return next_ != first_ && has_to_be_alone(*next_) ? nullptr : next_;
}

void RcQueue::taken(std::uint32_t requests) {
  assert(next_ != nullptr && requests != 0);
  if (next_->post.what == Operation::write_notice) --notices_;
  next_->requests = requests;
  requests_ += requests;
  next_ = next_->next;
}

RcSlot* RcQueue::completed(RcSlot& slot, int error) {
  assert(slot.requests != 0 && requests_ != 0);
  --slot.requests;
  --requests_;
  if (slot.error == 0) slot.error = error;
  broken_ |= slot.error != 0;
  if (slot.requests != 0) return nullptr;
  if (slot.error == 0) {
    assert(&slot == first_);
    if (alone_ != 0) --alone_;
  } else if (lane_ == Lane::accesses) {
    // Anything but the loss of the connection is this one's own fault.
    const bool own = slot.error != ECONNRESET;
    blamed_ |= own;
    if (!own && !is_atomic(slot.post)) return nullptr;
  }
  remove(slot);
  return &slot;
}

void RcQueue::remove(RcSlot& slot) {
  RcSlot* before = nullptr;
  for (RcSlot* s = first_; s != &slot; s = s->next) before = s;
  (before == nullptr ? first_ : before->next) = slot.next;
  if (last_ == &slot) last_ = before;
  if (next_ == &slot) next_ = slot.next;
}

void RcQueue::polled() {
  notices_ += kNoticesAtOnce;
  assert(notices_ <= kNotices);
}

void RcQueue::restart() {
  assert(requests_ == 0 && suspect_ == nullptr);
  std::uint32_t again = 0;
  for (RcSlot* s = first_; s != next_; s = s->next, ++again) s->error = 0;
  if (again == 1 && !blamed_) {
    suspect_ = first_;
    remove(*first_);
    again = 0;
  }
  alone_ = blamed_ ? 0 : again;
  next_ = first_;
  notices_ = kNotices;
  broken_ = blamed_ = false;
}

RcSlot* RcQueue::suspect() {
  return std::exchange(suspect_, nullptr);
}

RcSlot* RcQueue::pop() {
  assert(requests_ == 0);
  RcSlot* slot = first_;
  if (slot != nullptr) remove(*slot);
  return slot;
}

RcSlot* RcQueue::pop_waiting() {
  RcSlot* slot = next_;
  if (slot != nullptr) remove(*slot);
  return slot;
}

}  // namespace ewarp::acp
