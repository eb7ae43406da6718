// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/completion_queue.h"

#include <fcntl.h>

#include <algorithm>
#include <cassert>

namespace ewarp::channel {
namespace {

constexpr std::size_t kFirstSize = 1024;
constexpr unsigned kAcknowledgedAtOnce = 64;

}  // namespace

Refusal CompletionQueue::open(ibv_context* context, int most) {
  assert(cq_ == nullptr);
  channel_ = ibv_create_comp_channel(context);
  if (channel_ == nullptr) return refused("ibv_create_comp_channel");
  fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  size_ = std::min(kFirstSize, static_cast<std::size_t>(most));
  cq_ = ibv_create_cq(context, static_cast<int>(size_), nullptr, channel_, 0);
  return cq_ == nullptr ? refused("ibv_create_cq") : Refusal();
}

CompletionQueue::~CompletionQueue() {
  if (cq_ != nullptr) {
    assert(reserved_ == 0);  // whoever has queue pairs on it ends first
    take_events();
    if (unacknowledged_ > 0) ibv_ack_cq_events(cq_, unacknowledged_);
    ibv_destroy_cq(cq_);
  }
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
}

bool CompletionQueue::reserve(std::size_t requests) {
  if (reserved_ + requests > size_) {
    // All of it is used in turn, so there is not much more of it than is needed.
    const std::size_t wanted = std::max(size_ + size_ / 4, reserved_ + requests);
    if (ibv_resize_cq(cq_, static_cast<int>(wanted)) != 0) return false;
    size_ = wanted;
  }
  reserved_ += requests;
  assert(reserved_ <= size_);
  return true;
}

void CompletionQueue::release(std::size_t requests) {
  assert(requests <= reserved_);
  reserved_ -= requests;
}

std::size_t CompletionQueue::poll(std::span<ibv_wc> out) {
  const int n = ibv_poll_cq(cq_, static_cast<int>(out.size()), out.data());
  assert(n <= static_cast<int>(out.size()));
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

void CompletionQueue::arm(Wake wake) {
  if (wake != Wake::nothing) ibv_req_notify_cq(cq_, wake == Wake::control ? 1 : 0);
}

// Acknowledging takes a lock, so it is done for many at once.
void CompletionQueue::take_events() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(channel_, &cq, &context) == 0) ++unacknowledged_;
  if (unacknowledged_ < kAcknowledgedAtOnce) return;
  ibv_ack_cq_events(cq_, unacknowledged_);
  unacknowledged_ = 0;
}

}  // namespace ewarp::channel
