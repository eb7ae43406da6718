// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A Send that finds no receive waits for one, for a bounded time (docs/design/rdmap.md).
#include <cstring>
#include <thread>

#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr int kWait = 400;  // milliseconds, set in main()

Bytes no_buffer(const Bytes& ulpdu) {
  return terminate(1, 2, 2, 0xc0, concat({u16(static_cast<unsigned>(ulpdu.size())), slice(ulpdu, 0, 18)}));
}

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

// The time counts for each message: a slow receiver is not a dead one.
void every_message_has_its_own_time(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, 8192);
    s.open_responder();
    constexpr std::uint32_t kMessages = 6;
    for (std::uint32_t msn = 1; msn <= kMessages; ++msn) s.peer->send(send_segment(msn, pattern(10, msn)));
    for (std::uint32_t msn = 1; msn <= kMessages; ++msn) {
      s.peer->expect_silence(kWait / 4);
      assert_int_equal(s.side.receive({s.side.sge(0, 50)}), 0);
      const ibv_wc wc = s.side.wait();
      if (wc.status != IBV_WC_SUCCESS) fail_msg("message %u: status %d", msn, wc.status);
      assert_memory_equal(s.side.at(0), pattern(10, msn).data(), 10);
    }
  }
}

// Holds: DDP-11
void ddp_11_nobody_posts_one(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, 8192);
    s.open_responder();
    const Bytes ulpdu = send_segment(1, pattern(20));
    s.peer->send(ulpdu);
    s.peer->expect_silence(kWait / 3);
    s.peer->expect(no_buffer(ulpdu));
    s.peer->expect_fin();
    s.expect_event("no receive", IBV_EVENT_QP_REQ_ERR);
    s.expect_ended("no receive");
  }
}

// Other ends of a stream that waits.
void ends_of_a_waiting_stream(void**) {
  for (const Setup& setup : kSetups)
    for (const int how : {0, 1, 2, 3, 4, 5}) {
      Setup with = setup;
      with.tcp = how == 1;
      Scene s(with, 8192);
      s.open_responder();
      s.peer->send(send_segment(1, pattern(20)));
      s.peer->expect_silence();
      ibv_qp_attr attr{};
      switch (how) {
        case 0:
          s.peer->close();
          break;
        case 1:
          s.peer->reset();
          break;
        case 2:
          s.side.qp->disconnect(true);
          break;
        case 3:
          s.side.qp->disconnect(false);
          break;
        case 4:
          attr.qp_state = IBV_QPS_ERR;
          assert_int_equal(s.side.qp->modify(attr, IBV_QP_STATE), 0);
          break;
        case 5:
          s.side.qp->destroy();
          break;
      }
      if (how >= 2) {
        s.peer->discard();
        s.peer->close();
      }
      const std::string what = name_of(setup) + ", end " + std::to_string(how);
      if (how != 5) EXPECT(what, s.side.reaches(IBV_QPS_ERR));
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

// A plain responder (no peer-to-peer) whose initiator never speaks may at last speak first (docs/design/rdmap.md); one
// that was promised an RTR waits for that.
void a_responder_that_has_waited_long_enough(void**) {
  for (const bool crc : {false, true}) {
    Scene s(Setup{.crc = crc}, 8192), t(Setup{.crc = crc, .peer_to_peer = true, .rtr = mpa::kRtrWrite}, 8192);
    assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 8)}), 0);
    assert_int_equal(t.side.send(IBV_WR_SEND, {t.side.sge(0, 8)}), 0);
    s.peer->expect_silence(kWait / 4);
    assert_int_equal(s.peer->next_segment().opcode, kSend);
    s.expect_completions("spoke first", {{1, IBV_WC_SUCCESS}});
    t.peer->expect_silence(kWait / 4);
    // And then the initiator speaks all the same.
    assert_int_equal(s.side.receive({s.side.sge(0, 50)}), 0);
    s.peer->send(send_segment(1, pattern(20)));
    s.expect_completions("and listens", {{100, IBV_WC_SUCCESS}});
  }
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("30000", std::to_string(kWait).c_str(), std::to_string(kWait / 2).c_str());
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_receive_that_comes_late),
      cmocka_unit_test(our_own_sends_go_on),
      cmocka_unit_test(every_message_has_its_own_time),
      cmocka_unit_test(ddp_11_nobody_posts_one),
      cmocka_unit_test(ends_of_a_waiting_stream),
      cmocka_unit_test(a_send_that_arrives_while_we_close),
      cmocka_unit_test(a_responder_that_has_waited_long_enough),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
