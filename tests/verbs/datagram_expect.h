// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Completions that the datagram tests wait for. Last among the includes: cmocka.h comes with it.
#pragma once

#include "tests/verbs/datagram_sides.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

namespace ewarp::test {

inline constexpr std::size_t kGrhOctets = 40;

inline void expect_send(DatagramSide& s, std::uint64_t id = 1) {
  const ibv_wc wc = s.wait();
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  assert_int_equal(wc.opcode, IBV_WC_SEND);
  assert_int_equal(wc.wr_id, id);
  assert_int_equal(wc.qp_num, s.qp->number());
}

// On a queue pair of UD, whatever carries it.
template <class Qp>
inline ibv_wc expect_receive(PortSide<Qp>& r, const PortSide<Qp>& from, std::uint32_t length, std::uint64_t id = 100) {
  const ibv_wc wc = r.wait();
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  assert_int_equal(wc.opcode, IBV_WC_RECV);
  assert_int_equal(wc.wr_id, id);
  assert_int_equal(wc.byte_len, kGrhOctets + length);
  assert_int_equal(wc.src_qp, from.qp->number());
  assert_true((wc.wc_flags & IBV_WC_GRH) != 0);
  return wc;
}

}  // namespace ewarp::test
