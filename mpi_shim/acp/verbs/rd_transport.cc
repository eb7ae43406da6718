// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/verbs/rd_transport.h"

#include <infiniband/etherwarpdv.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "mpi_shim/acp/core/text.h"

namespace ewarp::acp {
namespace {

constexpr std::uint32_t kReceiveBatch = 64;
constexpr std::uint64_t kReceive = ~std::uint64_t{0};  // the wr_id of all of them

}  // namespace

std::string RdTransport::open(const std::string& device, bool prefer_loopback, std::uint32_t qkey) {
  qkey_ = qkey;
  std::string why = device_.open(device, prefer_loopback, kSends + kReceives);
  if (why.empty()) why = create_queue_pair();
  if (!why.empty()) return why;
  if (!register_memory(&was_, sizeof was_, &was_region_)) return failed("ibv_reg_mr");
  refused_.reserve(kSends);
  post_receives();
  return {};
}

std::string RdTransport::create_queue_pair() {
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = device_.cq();
  init.cap = {.max_send_wr = kSends,
              .max_recv_wr = kReceives,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = kCopied};
  init.qp_type = IBV_QPT_DRIVER;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = device_.pd();
  init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;
  const etherwarpdv_qp_init_attr rd{.comp_mask = 0, .qp_type = ETHERWARPDV_QP_TYPE_RD, .reserved = 0};
  qp_ = etherwarpdv_create_qp_ex(device_.context(), &init, &rd, sizeof rd);
  if (qp_ == nullptr) return failed("etherwarpdv_create_qp_ex");
  qpx_ = ibv_qp_to_qp_ex(qp_);
  return bring_up() ? "" : failed("ibv_modify_qp");
}

bool RdTransport::bring_up() {
  ibv_qp_attr attr{};
  attr.port_num = 1;
  attr.qkey = qkey_;
  attr.qp_state = IBV_QPS_INIT;
  if (ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) != 0) return false;
  attr.qp_state = IBV_QPS_RTR;
  if (ibv_modify_qp(qp_, &attr, IBV_QP_STATE) != 0) return false;
  attr.qp_state = IBV_QPS_RTS;
  return ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0;
}

RdTransport::~RdTransport() {
  if (qp_ != nullptr) ibv_destroy_qp(qp_);
  if (was_region_.handle != nullptr) deregister(was_region_.handle);
}

void RdTransport::introduce(Contact* out) const {
  std::memcpy(out->gid, device_.gid().raw, sizeof out->gid);
  out->qpn = qp_->qp_num;
}

ibv_ah* RdTransport::path_to(Peer& peer) {
  if (peer.path == nullptr) {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.hop_limit = 64;
    std::memcpy(attr.grh.dgid.raw, peer.contact.gid, sizeof peer.contact.gid);
    peer.path = ibv_create_ah(device_.pd(), &attr);
  }
  return static_cast<ibv_ah*>(peer.path);
}

void RdTransport::forget(Peer& peer) {
  if (peer.path != nullptr) ibv_destroy_ah(static_cast<ibv_ah*>(peer.path));
  peer.path = nullptr;
}

void RdTransport::post(Peer& to, const Post& p) {
  assert(room() > 0);
  ++under_way_;
  if (const int error = build(to, p)) refused_.push_back({.id = p.id, .error = error, .notice = false, .immediate = 0});
}

void RdTransport::begin_operation(const Post& p) {
  switch (p.what) {
    case Operation::write:
      return ibv_wr_rdma_write(qpx_, p.rkey, p.remote);
    case Operation::write_notice:
      return ibv_wr_rdma_write_imm(qpx_, p.rkey, p.remote, htobe32(p.immediate));
    case Operation::publish:
      // A Write could be placed before what it publishes; an atomic is done in its turn.
      return ibv_wr_atomic_fetch_add(qpx_, p.rkey, p.remote, p.value - p.compare);
    case Operation::read:
      return ibv_wr_rdma_read(qpx_, p.rkey, p.remote);
    case Operation::add:
      return ibv_wr_atomic_fetch_add(qpx_, p.rkey, p.remote, p.value);
    case Operation::swap_if:
      return ibv_wr_atomic_cmp_swp(qpx_, p.rkey, p.remote, p.compare, p.value);
  }
}

// 0 or an errno.
int RdTransport::build(Peer& to, const Post& p) {
  ibv_ah* path = path_to(to);
  if (path == nullptr) return ECONNRESET;
  ibv_wr_start(qpx_);
  qpx_->wr_id = p.id;
  qpx_->wr_flags = IBV_SEND_SIGNALED;
  begin_operation(p);
  ibv_wr_set_ud_addr(qpx_, path, to.contact.qpn, qkey_);
  if (p.what == Operation::publish)
    ibv_wr_set_sge(qpx_, was_region_.lkey, reinterpret_cast<std::uintptr_t>(&was_), sizeof was_);
  else if (p.copied)
    ibv_wr_set_inline_data(qpx_, const_cast<void*>(p.local), p.octets);
  else if (p.octets != 0)
    ibv_wr_set_sge(qpx_, p.lkey, reinterpret_cast<std::uintptr_t>(p.local), p.octets);
  return ibv_wr_complete(qpx_);
}

// Receives without memory: a notice is in the completion.
void RdTransport::post_receives() {
  ibv_recv_wr wr[kReceiveBatch]{};
  ibv_recv_wr* bad;
  while (missing_receives_ != 0) {
    const std::uint32_t now = std::min(missing_receives_, kReceiveBatch);
    for (std::uint32_t i = 0; i < now; ++i) {
      wr[i].wr_id = kReceive;
      wr[i].next = i + 1 < now ? &wr[i + 1] : nullptr;
    }
    if (ibv_post_recv(qp_, wr, &bad) != 0) break;
    missing_receives_ -= now;
  }
}

int RdTransport::poll(Completion* out, int most) {
  int n = 0;
  for (; n < most && !refused_.empty(); ++n) {
    out[n] = refused_.back();
    refused_.pop_back();
    --under_way_;
  }
  ibv_wc wc[kPolled];
  const int polled = ibv_poll_cq(device_.cq(), std::min(most - n, kPolled), wc);
  for (int i = 0; i < polled; ++i)
    if (take(wc[i], &out[n])) ++n;
  if (missing_receives_ >= kReceiveBatch) post_receives();
  return n;
}

// False: it says nothing to anybody.
bool RdTransport::take(const ibv_wc& wc, Completion* out) {
  *out = {.id = wc.wr_id, .error = error_of(wc.status), .notice = wc.wr_id == kReceive, .immediate = 0};
  if (!out->notice) return --under_way_, true;
  ++missing_receives_;
  if (wc.status == IBV_WC_SUCCESS) out->immediate = be32toh(wc.imm_data);
  return wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
}

}  // namespace ewarp::acp
