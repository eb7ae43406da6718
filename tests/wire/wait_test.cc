// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A Send that finds no receive waits for one (docs/design/rdmap.md). That it does not for ever: expiry_test.cc.
#include <cstring>
#include <thread>

#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

void a_receive_that_comes_late(void**) {
  for (const Setup& setup : kSetups)
    for (const std::size_t octets : {std::size_t{0}, std::size_t{20}, std::size_t{40000}}) {
      Scene s(setup, 256 * 1024);
      s.open_responder();
      const Bytes data = pattern(octets), behind = pattern(33, 2);
      s.peer->send(send_segment(1, data));
      s.peer->send(write_segment(s.side.mr->stag(), s.side.address(100000), behind));
      s.peer->send(read_request(1, 9, 0, 33, s.side.mr->stag(), s.side.address(100000)));
      s.peer->expect_silence(50);
      assert_int_equal(s.side.state(), IBV_QPS_RTS);
      assert_int_equal(s.side.receive({s.side.sge(0, 50000)}), 0);
      const ibv_wc wc = s.side.wait();
      assert_int_equal(wc.status, IBV_WC_SUCCESS);
      assert_int_equal(wc.byte_len, octets);
      if (octets > 0) assert_memory_equal(s.side.at(0), data.data(), octets);
      s.peer->expect(read_response(9, 0, behind));
    }
}

// What is sent meanwhile does not wait.
void our_own_sends_go_on(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, 8192);
    s.open_responder();
    s.peer->send(send_segment(1, pattern(20)));
    s.peer->expect_silence();
    assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 8)}), 0);
    assert_int_equal(s.peer->next_segment().opcode, kSend);
    assert_int_equal(s.side.wait().status, IBV_WC_SUCCESS);
  }
}

// Ends of our own while the stream waits. The peer's are seen when it is read again: expiry_test.cc.
void ends_of_a_waiting_stream(void**) {
  for (const Setup& setup : kSetups)
    for (const int how : {0, 1, 2, 3}) {
      Scene s(setup, 8192);
      s.open_responder();
      s.peer->send(send_segment(1, pattern(20)));
      s.peer->expect_silence();
      ibv_qp_attr attr{};
      switch (how) {
        case 0:
          s.side.qp->disconnect(true);
          break;
        case 1:
          s.side.qp->disconnect(false);
          break;
        case 2:
          attr.qp_state = IBV_QPS_ERR;
          assert_int_equal(s.side.qp->modify(attr, IBV_QP_STATE), 0);
          break;
        case 3:
          s.side.qp->destroy();
          break;
      }
      s.peer->discard();
      s.peer->close();
      const std::string what = name_of(setup) + ", end " + std::to_string(how);
      if (how != 3) EXPECT(what, s.side.reaches(IBV_QPS_ERR));
      EXPECT(what, s.side.disconnects());
      s.expect_completions(what, {});
    }
}

// Receives are given back when a close begins; what still comes in must not hold it up.
void a_send_that_arrives_while_we_close(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, 8192);
    s.open_responder();
    assert_int_equal(s.side.receive({s.side.sge(0, 50)}), 0);
    s.peer->send(read_request(1, 9, 0, 0, 0, 0));
    assert_int_equal(s.peer->next_segment().opcode, kReadResponse);
    const auto begin = std::chrono::steady_clock::now();
    s.side.qp->disconnect(true);
    s.peer->send(send_segment(1, pattern(20)));
    s.peer->expect_fin();
    s.peer->close();
    s.expect_ended("closing");
    s.expect_completions("closing", {{100, IBV_WC_WR_FLUSH_ERR}});
    // The close timeout is half a minute here.
    assert_true(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
  }
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("30000", "30000");
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_receive_that_comes_late),
      cmocka_unit_test(our_own_sends_go_on),
      cmocka_unit_test(ends_of_a_waiting_stream),
      cmocka_unit_test(a_send_that_arrives_while_we_close),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
