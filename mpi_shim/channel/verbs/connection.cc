// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/connection.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "mpi_shim/channel/core/link.h"
#include "mpi_shim/channel/core/room.h"
#include "mpi_shim/channel/verbs/element.h"
#include "mpi_shim/channel/verbs/failed.h"

namespace ewarp::channel {
namespace {

// The first message of a connection finds a receive of its own, which is not posted again: what the peer sends behind
// it needs no word of ours.
constexpr std::uint32_t kGreetings = 1;

}  // namespace

Connection::Connection(std::uint32_t serial, PeerId peer, OwnedId id, State first)
    : serial_(serial), peer_(peer), state_(first), id_(id.release()) {
  assert(serial != 0 && id_ != nullptr);
  assert(first == State::resolving || first == State::accepting);
  id_->context = this;
}

void Connection::enter(State to) {
  assert(allowed(state_, to));
  state_ = to;
}

std::string Connection::prepare(ibv_pd* pd, CompletionQueue& completions, BufferPool& receives, const Tuning& tuning) {
  assert(id_->qp == nullptr && completions_ == nullptr);
  if (!completions.reserve(kSendDepth + 1)) return failed("ibv_resize_cq");
  completions_ = &completions;
  reserved_ = kSendDepth + 1;
  pool_ = &receives;
  most_receives_ = Link::receives(tuning.receive_depth) + kGreetings;
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = completions.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {.max_send_wr = kSendDepth + 1,
                    .max_recv_wr = most_receives_,
                    .max_send_sge = 2,
                    .max_recv_sge = 1,
                    .max_inline_data = 192};
  if (rdma_create_qp(id_, pd, &attributes) != 0) {
    attributes.cap.max_inline_data = 0;
    if (rdma_create_qp(id_, pd, &attributes) != 0) return failed("rdma_create_qp");
  }
  inline_octets_ = attributes.cap.max_inline_data;
  for (std::uint32_t i = Link::receives(Link::kFirstWindow) + kGreetings; i > 0; --i)
    if (!add_receive()) return failed("ibv_post_recv");
  surplus_ = kGreetings;
  return {};
}

void Connection::close() {
  if (id_ == nullptr) return;
  if (id_->qp != nullptr) rdma_destroy_qp(id_);
  id_->context = nullptr;  // events of an id that cannot be destroyed are nobody's
  rdma_destroy_id(std::exchange(id_, nullptr));
  for (const BufferPool::Buffer& buffer : std::exchange(buffers_, {}))
    if (buffer.data != nullptr) pool_->give(buffer);
  if (completions_ != nullptr) completions_->release(std::exchange(reserved_, 0));
}

bool Connection::post_send(ibv_send_wr& wr) {
  assert(id_->qp != nullptr && sends_ <= kSendDepth);  // the greeting has a place of its own
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(id_->qp, &wr, &bad) != 0) return false;
  ++sends_;
  return true;
}

bool Connection::post_sends(ibv_send_wr& first, std::uint32_t count) {
  assert(id_->qp != nullptr && sends_ + count <= kSendDepth + 1);
  ibv_send_wr* bad = nullptr;
  sends_ += count;
  return ibv_post_send(id_->qp, &first, &bad) == 0;
}

bool Connection::post_receive(std::uint32_t index) {
  assert(buffers_[index].data != nullptr && receives_ < most_receives_);
  ibv_sge sge = element(buffers_[index].data, pool_->octets(), buffers_[index].lkey);
  ibv_recv_wr wr{};
  wr.wr_id = receive_id::make(serial_, index);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (ibv_post_recv(id_->qp, &wr, &bad) != 0) return false;
  ++receives_;
  return true;
}

// For one receive more.
bool Connection::add_index() {
  try {
    make_room(buffers_, spare_);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return false;
  }
  spare_.push_back(static_cast<std::uint32_t>(buffers_.size()));
  buffers_.emplace_back();
  return true;
}

// One more than there are. False, and errno: there cannot be.
bool Connection::add_receive() {
  if (spare_.empty() && !add_index()) return false;
  if (!completions_->reserve(1)) return false;
  ++reserved_;
  BufferPool::Buffer& buffer = buffers_[spare_.back()];
  buffer = pool_->take();
  if (buffer.data != nullptr && post_receive(spare_.back())) {
    spare_.pop_back();
    return true;
  }
  if (buffer.data != nullptr) pool_->give(std::exchange(buffer, {}));
  completions_->release(1);
  --reserved_;
  return false;
}

// All or none.
bool Connection::add_receives(std::uint32_t count) {
  if (state_ != State::up) return false;
  const std::uint32_t kept = std::min(surplus_, count);
  surplus_ -= kept;
  for (std::uint32_t i = kept; i < count; ++i) {
    if (add_receive()) continue;
    surplus_ += i;  // those that were added already
    return false;
  }
  return true;
}

Octets Connection::look(std::uint32_t index, std::size_t octets) {
  assert(!used_ && looked_at_.data == nullptr);
  assert(index < buffers_.size() && octets <= pool_->octets());
  assert(std::find(spare_.begin(), spare_.end(), index) == spare_.end());
  used_ = index;
  looked_at_ = buffers_[index];
  return {looked_at_.data, octets};
}

// The one that was used is not posted again, if there are too many. It leaves its buffer to who looks at it.
bool Connection::retire_surplus() {
  if (surplus_ == 0) return false;
  --surplus_;
  buffers_[*used_] = {};
  spare_.push_back(*used_);
  used_.reset();
  completions_->release(1);
  --reserved_;
  return true;
}

bool Connection::renew() {
  if (!used_ || retire_surplus()) return true;
  BufferPool::Buffer& buffer = buffers_[*used_];
  buffer = pool_->take();
  if (buffer.data != nullptr && post_receive(*used_)) return used_.reset(), true;
  if (buffer.data != nullptr) pool_->give(buffer);
  buffer = looked_at_;
  return false;
}

bool Connection::looked() {
  const BufferPool::Buffer buffer = std::exchange(looked_at_, {});
  // Before it is up, too: what a peer that has accepted sends may come before rdma_cm tells of it.
  if (used_ && state_ != State::draining && !retire_surplus()) return post_receive(*std::exchange(used_, {}));
  // Of a connection that has ended it stays where it is.
  if (!std::exchange(used_, {})) pool_->give(buffer);
  return true;
}

void Connection::flush() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  if (id_->qp != nullptr) ibv_modify_qp(id_->qp, &attributes, IBV_QP_STATE);
}

}  // namespace ewarp::channel
