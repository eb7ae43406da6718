// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The twin device: the same RNIC with IB's rules for ibv_modify_qp().
#include <errno.h>

#include <bit>

#include "tests/verbs/by_address.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

using namespace test::by_address;
using test::Side;

Device& twin() {
  Device* device = find_device("ewarpx_lo");
  assert_non_null(device);
  return *device;
}

constexpr unsigned kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct TwinSide : Side {
  TwinSide() : Side(1 << 14, kAccess, twin()) {}
};

constexpr int kState = IBV_QP_STATE;

// Attributes that are right for every transition.
ibv_qp_attr good(ibv_qp_state to, std::uint32_t peer) {
  ibv_qp_attr a = rtr_attr(peer);
  a.qp_state = to;
  a.port_num = 1;
  a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  a.timeout = 14;
  a.retry_cnt = a.rnr_retry = 7;
  a.max_rd_atomic = 4;
  return a;
}

int modify(Side& s, ibv_qp_state to, int mask) {
  ibv_qp_attr a = good(to, number(s));  // its own peer: nobody else is needed
  a.cur_qp_state = s.state();
  return s.qp->modify(a, mask);
}

struct Transition {
  const char* name;
  ibv_qp_state from, to;
  int required, optional;
};
// Transcribed from the table of ibv_modify_qp(3), RC.
constexpr Transition kTransitions[] = {
    {"RESET to INIT", IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {"INIT to INIT", IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {"INIT to RTR", IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {"RTR to RTS", IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER},
    {"RTS to RTS", IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER},
};

void bring_to(Side& s, ibv_qp_state state) {
  for (const Transition& t : kTransitions)
    if (s.state() == t.from && t.from != t.to && s.state() != state)
      assert_int_equal(modify(s, t.to, kState | t.required), 0);
  assert_int_equal(s.state(), state);
}

// Holds: VRB-1
void each_transition_wants_its_attributes_and_no_others(void**) {
  constexpr int kAll = (IBV_QP_RATE_LIMIT << 1) - 1;
  for (const Transition& t : kTransitions) {
    print_message("transition: %s\n", t.name);
    TwinSide s;
    bring_to(s, t.from);
    for (int bit = IBV_QP_STATE << 1; bit < kAll; bit <<= 1) {
      const bool required = (t.required & bit) != 0, foreign = ((t.required | t.optional) & bit) == 0;
      // ALT_PATH and CUR_STATE may come along; what is missing, or does not belong, changes nothing.
      if (required) assert_int_equal(modify(s, t.to, kState | (t.required & ~bit)), EINVAL);
      if (foreign) assert_int_equal(modify(s, t.to, kState | t.required | bit), EINVAL);
      assert_int_equal(s.state(), t.from);
    }
    assert_int_equal(modify(s, t.to, kState | t.required | t.optional), 0);
    assert_int_equal(s.state(), t.to);
  }
}

// Holds: VRB-1
// What rdma_cm asks of an RNIC: no address, no RTS by the application.
void an_rnic_s_way_is_none(void**) {
  TwinSide s;
  bring_to(s, IBV_QPS_INIT);
  assert_int_equal(modify(s, IBV_QPS_RTR, kState), EINVAL);
  assert_int_equal(modify(s, IBV_QPS_RTS, kState), EINVAL);
  bring_to(s, IBV_QPS_RTS);
  assert_int_equal(modify(s, IBV_QPS_SQD, kState), EOPNOTSUPP);
  assert_int_equal(s.state(), IBV_QPS_RTS);
  assert_int_equal(modify(s, IBV_QPS_ERR, kState), 0);
  assert_int_equal(modify(s, IBV_QPS_ERR, kState), 0);
  assert_int_equal(modify(s, IBV_QPS_INIT, kState | IBV_QP_PORT), EINVAL);
  assert_int_equal(modify(s, IBV_QPS_RESET, kState), 0);
}

void receives_from_init_on_sends_once_rtr_named_the_peer(void**) {
  TwinSide s;
  const auto posts = [&](int send, int receive) {
    assert_int_equal(s.receive({s.sge(0, 64)}), receive);
    assert_int_equal(s.send(IBV_WR_SEND, {s.sge(64, 8)}), send);
  };
  posts(EINVAL, EINVAL);
  bring_to(s, IBV_QPS_INIT);
  posts(EINVAL, 0);
  bring_to(s, IBV_QPS_RTR);
  posts(0, 0);
  bring_to(s, IBV_QPS_RTS);
  posts(0, 0);
}

void fetch_and_add(Side& a, Side& b) {
  const std::uint64_t before = 40;
  std::memcpy(b.at(0), &before, sizeof before);
  assert_int_equal(
      a.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, a.sge(0, 8), b.address(0), b.mr->stag(), 2, 0, IBV_SEND_SIGNALED, 9), 0);
  expect_wc(a, 9);
  const std::uint64_t after = 42;
  assert_memory_equal(a.at(0), &before, sizeof before);
  assert_memory_equal(b.at(0), &after, sizeof after);
}

void connect(Side& a, Side& b) {
  const int mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
  for (auto [s, peer] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    ibv_qp_attr init = good(IBV_QPS_INIT, 0);
    init.qp_access_flags = kAccess;
    assert_int_equal(s->qp->modify(init, mask), 0);
    assert_int_equal(to_rtr(*s, number(*peer)), 0);
    assert_int_equal(to_rts(*s), 0);
  }
}

void twins_among_themselves_and_with_an_rnic(void**) {
  {
    TwinSide a, b;
    connect(a, b);
    traffic(a, b);
    fetch_and_add(b, a);
  }
  TwinSide a;
  Side rnic(1 << 14, kAccess);
  connect(a, rnic);
  traffic(a, rnic);
  fetch_and_add(rnic, a);
}

void it_counts_for_itself(void**) {
  TwinSide a, b;
  const auto sent = [](Device& d) { return d.counters().traffic.tx_octets.load(); };
  const auto of_twin = sent(twin()), of_rnic = sent(test::any_device());
  connect(a, b);
  traffic(a, b);
  assert_true(sent(twin()) > of_twin);
  assert_true(sent(test::any_device()) == of_rnic);
}

}  // namespace

int main() {
  stop_at_first_failure();
  setenv("ETHERWARP_TWIN", "1", 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(each_transition_wants_its_attributes_and_no_others),
      cmocka_unit_test(an_rnic_s_way_is_none),
      cmocka_unit_test(receives_from_init_on_sends_once_rtr_named_the_peer),
      cmocka_unit_test(twins_among_themselves_and_with_an_rnic),
      cmocka_unit_test(it_counts_for_itself),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
