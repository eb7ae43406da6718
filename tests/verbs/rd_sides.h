// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Queue pairs of RD of this process on the loopback device. Last among the includes: cmocka.h comes with it.
#pragma once

#include "tests/verbs/datagram_expect.h"

namespace ewarp::test {

struct RdSide : PortSide<RdQueuePair> {
  explicit RdSide(SharedReceiveQueue* srq = nullptr, ibv_qp_type type = IBV_QPT_DRIVER, ibv_qp_state to = IBV_QPS_RTS,
                  int cqe = 4096)
      : PortSide(type, srq, to, cqe,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC) {
  }

  // What a request asks for; the address is put() by request().
  struct Request {
    ibv_wr_opcode opcode = IBV_WR_SEND;
    std::vector<ibv_sge> sges{};
    std::uint64_t id = 1;
    unsigned flags = IBV_SEND_SIGNALED;
    std::uint32_t immediate = 0, invalidate = 0;
    std::uint64_t remote_address = 0, operand = 0, swap = 0;
    std::uint32_t rkey = 0;
    std::uint32_t qkey = kQkey;
  };
  int request(AddressHandleObject& ah, std::uint32_t qpn, Request r) {
    AddressedSend wr{};
    wr.wr_id = r.id;
    wr.opcode = r.opcode;
    wr.sg_list = r.sges.data();
    wr.num_sge = static_cast<int>(r.sges.size());
    wr.send_flags = r.flags;
    if (r.opcode == IBV_WR_SEND_WITH_INV)
      wr.invalidate_rkey = r.invalidate;
    else
      wr.imm_data = htobe32(r.immediate);
    if (r.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || r.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      wr.wr.atomic = {r.remote_address, r.operand, r.swap, r.rkey};
    else
      wr.wr.rdma = {r.remote_address, r.rkey};
    wr.ah = &ah;
    wr.remote_qpn = qpn;
    wr.remote_qkey = r.qkey;
    return qp->post_all(&wr);
  }
  // The octets at `offset` as a peer names them.
  std::uint64_t remote(std::size_t offset) { return reinterpret_cast<std::uintptr_t>(at(offset)); }
  std::uint32_t rkey() const { return mr->stag(); }
};

inline void expect_done(RdSide& s, ibv_wc_opcode opcode, std::uint64_t id = 1, ibv_wc_status status = IBV_WC_SUCCESS) {
  const ibv_wc wc = s.wait(60000);
  assert_int_equal(wc.status, status);
  assert_int_equal(wc.wr_id, id);
  if (status == IBV_WC_SUCCESS) assert_int_equal(wc.opcode, opcode);
  assert_int_equal(wc.qp_num, s.qp->number());
}

inline ibv_wc expect_message(RdSide& r, const RdSide& from, std::uint32_t length, std::uint64_t id = 100) {
  const ibv_wc wc = r.wait(60000);
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  assert_int_equal(wc.opcode, IBV_WC_RECV);
  assert_int_equal(wc.wr_id, id);
  assert_int_equal(wc.byte_len, length);
  assert_int_equal(wc.src_qp, from.qp->number());
  return wc;
}

}  // namespace ewarp::test
