// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Queue pairs with the ibv_wr_*() interface (ibv_create_qp_ex(3), ibv_wr_post(3)).
#include <algorithm>
#include <array>
#include <cstring>

#include "provider/rdmav34/objects.h"

namespace ewarp::rdmav34 {
namespace {

SendBatch& batch(ibv_qp_ex* qp) {
  return *static_cast<QpObject*>(&qp->qp_base)->batch;
}

ibv_send_wr* add(ibv_qp_ex* qp, ibv_wr_opcode opcode) {
  return batch(qp).add(opcode, qp->wr_id, qp->wr_flags);
}

// --- the region -----------------------------------------------------------------------------------------------------

void wr_start(ibv_qp_ex* qp) {
  batch(qp).start();
}

int wr_complete(ibv_qp_ex* qp) {
  return guarded([qp] { return batch(qp).complete(impl(&qp->qp_base)); });
}

void wr_abort(ibv_qp_ex* qp) {
  batch(qp).abort();
}

// --- requests -------------------------------------------------------------------------------------------------------

void wr_send(ibv_qp_ex* qp) {
  add(qp, IBV_WR_SEND);
}

void wr_send_imm(ibv_qp_ex* qp, __be32 immediate) {
  if (ibv_send_wr* wr = add(qp, IBV_WR_SEND_WITH_IMM)) wr->imm_data = immediate;
}

void wr_send_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  if (ibv_send_wr* wr = add(qp, IBV_WR_SEND_WITH_INV)) wr->invalidate_rkey = rkey;
}

ibv_send_wr* add_rdma(ibv_qp_ex* qp, ibv_wr_opcode opcode, std::uint32_t rkey, std::uint64_t address) {
  ibv_send_wr* wr = add(qp, opcode);
  if (wr != nullptr) wr->wr.rdma = {address, rkey};
  return wr;
}

void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  add_rdma(qp, IBV_WR_RDMA_WRITE, rkey, address);
}

void wr_rdma_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
  if (ibv_send_wr* wr = add_rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address)) wr->imm_data = immediate;
}

void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  add_rdma(qp, IBV_WR_RDMA_READ, rkey, address);
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t compare,
                       std::uint64_t swap) {
  if (ibv_send_wr* wr = add(qp, IBV_WR_ATOMIC_CMP_AND_SWP)) wr->wr.atomic = {address, compare, swap, rkey};
}

void wr_atomic_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t addend) {
  if (ibv_send_wr* wr = add(qp, IBV_WR_ATOMIC_FETCH_AND_ADD)) wr->wr.atomic = {address, addend, 0, rkey};
}

void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  if (ibv_send_wr* wr = add(qp, IBV_WR_BIND_MW)) wr->bind_mw = {mw, rkey, *info};
}

void wr_local_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  if (ibv_send_wr* wr = add(qp, IBV_WR_LOCAL_INV)) wr->invalidate_rkey = rkey;
}

void wr_send_tso(ibv_qp_ex* qp, void*, std::uint16_t, std::uint16_t) {
  batch(qp).fail(EOPNOTSUPP);
}

// --- what belongs to a request --------------------------------------------------------------------------------------

void wr_set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  const ibv_sge sge{address, length, lkey};
  batch(qp).set_sges(std::span(&sge, 1));
}

void wr_set_sge_list(ibv_qp_ex* qp, std::size_t n, const ibv_sge* list) {
  batch(qp).set_sges(std::span(list, n));
}

void wr_set_inline_data(ibv_qp_ex* qp, void* address, std::size_t length) {
  const ibv_data_buf buffer{address, length};
  batch(qp).set_inline(std::span(&buffer, 1));
}

void wr_set_inline_data_list(ibv_qp_ex* qp, std::size_t n, const ibv_data_buf* list) {
  batch(qp).set_inline(std::span(list, n));
}

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey) {
  verbs::AddressedSend* wr = batch(qp).current();
  if (wr == nullptr) return;
  switch (qp->qp_base.qp_type) {
    case IBV_QPT_UD:
      wr->wr.ud = {ah, remote_qpn, remote_qkey};
      return;
    case IBV_QPT_DRIVER:
      wr->ah = ah;
      wr->remote_qpn = remote_qpn;
      wr->remote_qkey = remote_qkey;
      return;
    default:
      batch(qp).fail(EINVAL);
  }
}

void wr_set_xrc_srqn(ibv_qp_ex* qp, std::uint32_t) {
  batch(qp).fail(EOPNOTSUPP);
}

// --- creation -------------------------------------------------------------------------------------------------------

// What may be asked for in send_ops_flags.
constexpr std::uint64_t kReliableOperations = kRdOperations | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
constexpr std::uint64_t kDatagramOperations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

constexpr std::uint64_t operations_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return kReliableOperations;
    case IBV_QPT_UD:
      return kDatagramOperations;
    case IBV_QPT_DRIVER:
      return kRdOperations;
    default:
      return 0;
  }
}

// verbs_qp.comp_mask, which tells ibv_qp_to_qp_ex() that there is one, comes behind ibv_qp_ex, which has grown: to 352
// octets in rdma-core 44, to 360 in 45. In a later one an earlier one's place is an operation that we refuse to have
// (atomic write, flush); in an earlier one a later one's is not looked at.
constexpr std::uint32_t kHasQpEx = 1u << 1;
constexpr std::size_t kQpExOctets[] = {344, 352, 360};
static_assert(kQpExOctets[2] + sizeof kHasQpEx <= kObjectReserve);
static_assert(offsetof(ibv_qp_ex, wr_abort) + sizeof(void*) <= kQpExOctets[0]);

void mark_extended(QpObject& qp) {
  for (const std::size_t at : kQpExOctets) std::memcpy(qp.reserve + (at - sizeof(ibv_qp)), &kHasQpEx, sizeof kHasQpEx);
}

void set_functions(ibv_qp_ex& qp) {
  qp.wr_start = wr_start;
  qp.wr_complete = wr_complete;
  qp.wr_abort = wr_abort;
  qp.wr_send = wr_send;
  qp.wr_send_imm = wr_send_imm;
  qp.wr_send_inv = wr_send_inv;
  qp.wr_send_tso = wr_send_tso;
  qp.wr_rdma_write = wr_rdma_write;
  qp.wr_rdma_write_imm = wr_rdma_write_imm;
  qp.wr_rdma_read = wr_rdma_read;
  qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
  qp.wr_bind_mw = wr_bind_mw;
  qp.wr_local_inv = wr_local_inv;
  qp.wr_set_sge = wr_set_sge;
  qp.wr_set_sge_list = wr_set_sge_list;
  qp.wr_set_inline_data = wr_set_inline_data;
  qp.wr_set_inline_data_list = wr_set_inline_data_list;
  qp.wr_set_ud_addr = wr_set_ud_addr;
  qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
}

// XRC, TSO, RSS, a source QPN and creation flags are not offered.
int check(ibv_context* context, const ibv_qp_init_attr_ex& init) {
  constexpr std::uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if ((init.comp_mask & ~kKnown) != 0) return EOPNOTSUPP;
  if ((init.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && init.create_flags != 0) return EOPNOTSUPP;
  if ((init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 &&
      (init.send_ops_flags & ~operations_of(init.qp_type)) != 0)
    return EOPNOTSUPP;
  return (init.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || init.pd->context != context ? EINVAL : 0;
}

int make_object(ibv_context* context, ibv_qp_init_attr_ex& init_ex, QpObject& qp) {
  if (const int error = check(context, init_ex); error != 0) return error;
  ibv_qp_init_attr init{};
  init.qp_context = init_ex.qp_context;
  init.send_cq = init_ex.send_cq;
  init.recv_cq = init_ex.recv_cq;
  init.srq = init_ex.srq;
  init.cap = init_ex.cap;
  init.qp_type = init_ex.qp_type;
  init.sq_sig_all = init_ex.sq_sig_all;
  if (const int error = make_qp(init_ex.pd, init, qp); error != 0) return error;
  init_ex.cap = init.cap;
  if ((init_ex.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) == 0) return 0;
  if (!qp.batch.emplace(init.cap, one_thread(init_ex.pd)).valid()) {
    impl(static_cast<ibv_qp*>(&qp)).destroy();
    return ENOMEM;
  }
  set_functions(*reinterpret_cast<ibv_qp_ex*>(static_cast<ibv_qp*>(&qp)));
  mark_extended(qp);
  return 0;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* init) {
  ibv_qp* out = nullptr;
  guarded([&] { return init->qp_type == IBV_QPT_DRIVER ? EOPNOTSUPP : make_qp_ex(context, *init, &out); });
  return out;
}

}  // namespace

int make_qp_ex(ibv_context* context, ibv_qp_init_attr_ex& init, ibv_qp** out) {
  auto qp = std::make_unique<QpObject>();
  if (const int error = make_object(context, init, *qp); error != 0) return error;
  *out = qp.release();
  return 0;
}

std::span<const Operation> queue_pair_ex_operations() {
  static const std::array all = {operation("create_qp_ex", create_qp_ex)};
  return all;
}

}  // namespace ewarp::rdmav34
