// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Queue pairs that are told their peer by ibv_modify_qp(), and a little traffic for them.
#pragma once

#include <cstring>

#include "tests/verbs/two_qps.h"
#include "tests/wire/peer.h"

namespace ewarp::test::by_address {

inline std::uint32_t number(Side& s) {
  return s.qp->number();
}

// The index of the first GID of this family; -1: there is none.
inline int gid_index(bool ipv4) {
  const auto gids = test::any_device().gids();
  for (std::size_t i = 0; i < gids.size(); ++i)
    if ((gids[i].raw[10] == 0xff) == ipv4) return static_cast<int>(i);
  return -1;
}

inline int to_init(Side& s) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  a.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  return s.qp->modify(a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
}

constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

inline ibv_qp_attr rtr_attr(std::uint32_t peer, int gid = gid_index(true)) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = IBV_MTU_1024;
  a.dest_qp_num = peer;
  a.max_dest_rd_atomic = 4;
  a.ah_attr.is_global = 1;
  a.ah_attr.port_num = 1;
  a.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid);
  a.ah_attr.grh.dgid = test::any_device().gids()[static_cast<std::size_t>(gid)];
  return a;
}

inline int to_rtr(Side& s, std::uint32_t peer, int gid = gid_index(true)) {
  return s.qp->modify(rtr_attr(peer, gid), kRtrMask);
}

inline int to_rts(Side& s) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTS;
  a.timeout = 14;
  a.retry_cnt = a.rnr_retry = 7;
  a.max_rd_atomic = 4;
  return s.qp->modify(
      a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

inline void up(Side& s, std::uint32_t peer, int gid = gid_index(true)) {
  assert_int_equal(to_init(s), 0);
  assert_int_equal(to_rtr(s, peer, gid), 0);
  assert_int_equal(to_rts(s), 0);
}

inline void expect_wc(Side& s, std::uint64_t id, ibv_wc_status status = IBV_WC_SUCCESS, int line = __builtin_LINE()) {
  const ibv_wc wc = s.wait();
  if (wc.wr_id != id || wc.status != status)
    fail_msg("line %d: completion %lu with status %d, want %lu with %d", line, wc.wr_id, wc.status, id, status);
}

// A Send, a Write and a Read from one side to the other.
inline void traffic(Side& a, Side& b) {
  std::memset(a.at(0), 0x5a, 4096);
  std::memset(b.at(0), 0, 8192);
  std::memset(b.at(8192), 0xa5, 4096);
  assert_int_equal(b.receive({b.sge(0, 4096)}, 100), 0);
  assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 4096)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
  expect_wc(a, 1);
  expect_wc(b, 100);
  assert_int_equal(a.send(IBV_WR_RDMA_WRITE, {a.sge(0, 4096)}, b.address(4096), b.mr->stag(), IBV_SEND_SIGNALED, 2), 0);
  expect_wc(a, 2);
  assert_int_equal(a.send(IBV_WR_RDMA_READ, {a.sge(8192, 4096)}, b.address(8192), b.mr->stag(), IBV_SEND_SIGNALED, 3),
                   0);
  expect_wc(a, 3);
  assert_memory_equal(b.at(0), a.at(0), 4096);
  assert_memory_equal(b.at(4096), a.at(0), 4096);
  assert_memory_equal(a.at(8192), b.at(8192), 4096);
}

}  // namespace ewarp::test::by_address
