// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/connection.h"

#include <algorithm>

#include "mpi_shim/channel/core/link.h"
#include "mpi_shim/channel/verbs/element.h"
#include "mpi_shim/channel/verbs/failed.h"

namespace ewarp::channel {

Connection::Connection(std::uint32_t serial, PeerId peer, rdma_cm_id* id, State first)
    : serial_(serial), peer_(peer), state_(first), id_(id) {
  assert(serial != 0 && id != nullptr);
  assert(first == State::resolving || first == State::accepting);
  id_->context = this;
}

void Connection::enter(State to) {
  assert(allowed(state_, to));
  state_ = to;
}

std::string Connection::prepare(ibv_pd* pd, CompletionQueue& completions, const Tuning& tuning) {
  assert(id_->qp == nullptr && completions_ == nullptr);
  receive_count_ = Link::receives(tuning.receive_depth) + 1;  // one for the greeting
  const std::size_t requests = receive_count_ + kSendDepth + 1;
  if (!completions.reserve(requests)) return failed("ibv_resize_cq");
  completions_ = &completions;
  reserved_ = requests;
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = completions.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {.max_send_wr = kSendDepth + 1,
                    .max_recv_wr = receive_count_,
                    .max_send_sge = 2,
                    .max_recv_sge = 1,
                    .max_inline_data = 256};
  if (rdma_create_qp(id_, pd, &attributes) != 0) {
    attributes.cap.max_inline_data = 0;
    if (rdma_create_qp(id_, pd, &attributes) != 0) return failed("rdma_create_qp");
  }
  inline_octets_ = attributes.cap.max_inline_data;
  receive_octets_ = wire::Message::kLongest + tuning.eager_threshold;
  octets_ = std::make_unique_for_overwrite<std::byte[]>(receive_count_ * receive_octets_);
  memory_ = ibv_reg_mr(pd, octets_.get(), receive_count_ * receive_octets_, IBV_ACCESS_LOCAL_WRITE);
  if (memory_ == nullptr) return failed("ibv_reg_mr");
  const std::uint32_t first = Link::receives(Link::first_window(tuning)) + 1;
  assert(first <= receive_count_);
  for (std::uint32_t i = 0; i < first; ++i)
    if (!post_receive(i)) return failed("ibv_post_recv");
  for (std::uint32_t i = receive_count_; i > first; --i) spare_.push_back(i - 1);
  return {};
}

void Connection::close() {
  if (id_ == nullptr) return;
  if (id_->qp != nullptr) rdma_destroy_qp(id_);
  rdma_destroy_id(std::exchange(id_, nullptr));
  if (memory_ != nullptr) ibv_dereg_mr(std::exchange(memory_, nullptr));
  if (completions_ != nullptr) completions_->release(std::exchange(reserved_, 0));
}

bool Connection::post_send(ibv_send_wr& wr) {
  assert(id_->qp != nullptr && sends_ <= kSendDepth);  // the greeting has a place of its own
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(id_->qp, &wr, &bad) != 0) return false;
  ++sends_;
  return true;
}

bool Connection::post_receive(std::uint32_t index) {
  assert(index < receive_count_ && receives_ < receive_count_);
  ibv_sge sge = element(octets_.get() + index * receive_octets_, receive_octets_, memory_->lkey);
  ibv_recv_wr wr{};
  wr.wr_id = receive_id::make(serial_, index);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (ibv_post_recv(id_->qp, &wr, &bad) != 0) return false;
  ++receives_;
  return true;
}

bool Connection::add_receives(std::uint32_t count) {
  if (state_ != State::up) return false;
  const std::uint32_t kept = std::min(surplus_, count);
  surplus_ -= kept;
  for (std::uint32_t i = kept; i < count; ++i) {
    if (spare_.empty() || !post_receive(spare_.back())) return false;
    spare_.pop_back();
  }
  return true;
}

Octets Connection::received(std::uint32_t index, std::size_t octets) {
  assert(index < receive_count_ && octets <= receive_octets_);
  return {octets_.get() + index * receive_octets_, octets};
}

bool Connection::use_again(std::uint32_t index) {
  assert(std::find(spare_.begin(), spare_.end(), index) == spare_.end());
  if (surplus_ == 0) return post_receive(index);
  --surplus_;
  spare_.push_back(index);
  return true;
}

void Connection::flush() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  if (id_->qp != nullptr) ibv_modify_qp(id_->qp, &attributes, IBV_QP_STATE);
}

}  // namespace ewarp::channel
