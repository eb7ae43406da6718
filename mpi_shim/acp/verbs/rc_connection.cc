// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/verbs/rc_connection.h"

#include <endian.h>

#include <cassert>
#include <cerrno>
#include <utility>

namespace ewarp::acp {
namespace {

// Of the peer, that it has polled notices: at most so many come before this end has seen the first.
constexpr std::uint32_t kWordsAtOnce = RcQueue::kNotices / RcQueue::kNoticesAtOnce;

ibv_wr_opcode opcode_of(Operation what) {
  switch (what) {
    case Operation::write:
      return IBV_WR_RDMA_WRITE;
    case Operation::write_notice:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case Operation::read:
      return IBV_WR_RDMA_READ;
    case Operation::publish:  // behind everything before it
    case Operation::add:
      return IBV_WR_ATOMIC_FETCH_AND_ADD;
    case Operation::swap_if:
      return IBV_WR_ATOMIC_CMP_AND_SWP;
  }
  return IBV_WR_RDMA_WRITE;
}

void set_place(const Post& p, ibv_send_wr* wr) {
  switch (p.what) {
    case Operation::write:
    case Operation::write_notice:
    case Operation::read:
      wr->wr.rdma = {.remote_addr = p.remote, .rkey = p.rkey};
      return;
    case Operation::publish:
      wr->wr.atomic = {.remote_addr = p.remote, .compare_add = p.value - p.compare, .swap = 0, .rkey = p.rkey};
      return;
    case Operation::add:
      wr->wr.atomic = {.remote_addr = p.remote, .compare_add = p.value, .swap = 0, .rkey = p.rkey};
      return;
    case Operation::swap_if:
      wr->wr.atomic = {.remote_addr = p.remote, .compare_add = p.compare, .swap = p.value, .rkey = p.rkey};
      return;
  }
}

}  // namespace

// --- both ends ---

void RcEnd::own(rdma_cm_id* id) {
  assert(id_ == nullptr);
  id_ = id;
  id_->context = this;
}

// Accesses bring no notices.
std::uint32_t RcEnd::most_receives() const {
  if (lane_ == Lane::accesses) return 0;
  return outbound_ ? kWordsAtOnce : RcQueue::kNotices;
}

std::uint32_t RcEnd::completions() const {
  return most_receives() + (outbound_ ? 0 : RcInbound::kWords);
}

bool RcEnd::create(ibv_pd* pd, ibv_cq* cq) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {.max_send_wr = outbound_ ? RcQueue::kDepth : RcInbound::kWords,
              .max_recv_wr = most_receives() == 0 ? 1 : most_receives(),
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  return rdma_create_qp(id_, pd, &init) == 0;
}

bool RcEnd::post_receive() {
  ibv_recv_wr wr{}, *bad;
  wr.wr_id = rc_id(RcRequest::receive, this);
  if (ibv_post_recv(id_->qp, &wr, &bad) != 0) return false;
  ++receives_;
  return true;
}

bool RcEnd::post_receives() {
  while (receives_ < most_receives())
    if (!post_receive()) return false;
  return true;
}

void RcEnd::flush() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  if (id_->qp != nullptr) ibv_modify_qp(id_->qp, &attr, IBV_QP_STATE);
}

void RcEnd::close() {
  if (id_ == nullptr) return;
  if (id_->qp != nullptr) rdma_destroy_qp(id_);
  rdma_destroy_id(std::exchange(id_, nullptr));
}

// --- the one that posts ---

void RcOutbound::enter(State to) {
  assert(allowed(state_, to));
  state_ = to;
}

int RcOutbound::send(RcSlot& slot, std::uint32_t spare_lkey) {
  const Post& p = slot.post;
  const auto spare = reinterpret_cast<std::uintptr_t>(slot.octets);
  const bool result_is_nobodys = p.what == Operation::publish;
  ibv_sge own{.addr = reinterpret_cast<std::uintptr_t>(p.local), .length = p.octets, .lkey = p.lkey};
  if (p.copied || result_is_nobodys)
    own = {.addr = spare, .length = result_is_nobodys ? std::uint32_t{sizeof p.value} : p.octets, .lkey = spare_lkey};
  ibv_send_wr first{}, placed{}, *bad = nullptr;
  first.wr_id = placed.wr_id = rc_id(RcRequest::post, &slot);
  first.send_flags = placed.send_flags = IBV_SEND_SIGNALED;
  first.opcode = opcode_of(p.what);
  first.sg_list = &own;
  first.num_sge = own.length != 0 ? 1 : 0;
  first.imm_data = htobe32(p.immediate);
  set_place(p, &first);
  ibv_sge last_octet{.addr = spare, .length = 1, .lkey = spare_lkey};
  placed.opcode = IBV_WR_RDMA_READ;
  placed.sg_list = &last_octet;
  placed.num_sge = 1;
  placed.wr.rdma = {.remote_addr = p.remote, .rkey = p.rkey};
  if (RcQueue::requests_of(p) == 2) first.next = &placed;
  const int error = ibv_post_send(id()->qp, &first, &bad);
  if (error == 0) return queue.taken(RcQueue::requests_of(p)), 0;
  if (bad != &placed) return error;
  // The Write alone went. It ends, but not well: nobody would know whether it is placed.
  slot.error = error;
  queue.taken(1);
  return 0;
}

// --- the one that is written to ---

bool RcInbound::polled() {
  ++polled_;
  return post_receive() && tell();
}

bool RcInbound::word_sent() {
  --words_;
  return ending || tell();
}

bool RcInbound::tell() {
  if (polled_ < RcQueue::kNoticesAtOnce || words_ == kWords) return true;
  ibv_send_wr wr{}, *bad;
  wr.wr_id = rc_id(RcRequest::word, this);
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (ibv_post_send(id()->qp, &wr, &bad) != 0) return false;
  ++words_;
  polled_ = static_cast<std::uint8_t>(polled_ - RcQueue::kNoticesAtOnce);
  return true;
}

}  // namespace ewarp::acp
