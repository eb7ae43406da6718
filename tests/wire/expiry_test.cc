// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a stream waits for ends (docs/user/security.md): a receive, the initiator's first message, the RTR, a close. The
// times are short here, for all of this process, so each case lets its time pass. A case says that something comes no
// sooner than its time, as measured from before the wait began, and not much later each time.
#include <chrono>
#include <cstring>

#include "provider/engine/engine.h"
#include "tests/vectors/waits.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

using std::chrono::milliseconds;
using test::Clock;

// Set in main().
constexpr milliseconds kReceive{200}, kResponder{200}, kRtr{450}, kClose{300};

std::string text(milliseconds time) {
  return std::to_string(time.count());
}

// How long a message for which nobody posts a receive waits; it is refused then.
Clock::duration unreceived(Scene& s, const Bytes& ulpdu) {
  s.open_responder();
  const auto begin = Clock::now();
  s.peer->send(ulpdu);
  s.peer->expect(answer_to(ulpdu, 1, 2, 2));
  const auto passed = test::since(begin);
  s.peer->expect_fin();
  s.expect_event("no receive", IBV_EVENT_QP_REQ_ERR);
  return passed;
}

// Holds: DDP-11
void ddp_11_nobody_posts_one(void**) {
  for (const Setup& setup : kSetups)
    test::expect_to_last(kReceive, name_of(setup), [&setup] {
      Scene s(setup, 8192);
      const auto passed = unreceived(s, send_segment(1, pattern(20)));
      s.expect_ended("no receive");
      return passed;
    });
}

// The peer ends the stream behind a Send that waits. The stream is not read meanwhile, and so ends with the wait.
void an_end_behind_a_message_that_waits(void**) {
  for (const Setup& base : kSetups)
    for (const bool reset : {false, true}) {
      Setup setup = base;
      setup.tcp = reset;
      Scene s(setup, 8192);
      s.open_responder();
      s.peer->send(send_segment(1, pattern(20)));
      poll(nullptr, 0, 25);  // long enough to be met, mostly; nothing hangs on it
      if (reset)
        s.peer->reset();
      else
        s.peer->close();
      s.expect_ended("ended");
      s.expect_completions("ended", {});
    }
}

// Holds: RDM-28
void an_immediate_for_which_nobody_posts_one(void**) {
  for (const Setup& setup : kSetups)
    test::expect_to_last(kReceive, name_of(setup), [&setup] {
      Scene s(consenting(setup), 8192);
      return unreceived(s, immediate(1, concat({u32(0xdeadbeef), u32(0)})));
    });
}

// Receives come slowly, the last of them later than a message may wait. False: this program got no CPU, and a message
// did wait its time, which says nothing.
bool a_slow_receiver_lives(const Setup& setup) {
  Scene s(setup, 8192);
  s.open_responder();
  constexpr std::uint32_t kMessages = 6;
  auto since = Clock::now();  // the message at the head of the queue has not waited longer
  for (std::uint32_t msn = 1; msn <= kMessages; ++msn) s.peer->send(send_segment(msn, pattern(10, msn)));
  for (std::uint32_t msn = 1; msn <= kMessages; ++msn) {
    poll(nullptr, 0, static_cast<int>(kReceive.count()) / 4);
    const auto posted = Clock::now();
    assert_int_equal(s.side.receive({s.side.sge(0, 50)}), 0);
    const ibv_wc wc = s.side.wait();
    if (wc.status != IBV_WC_SUCCESS) {
      const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - since);
      if (waited < kReceive) fail_msg("message %u: status %d after %s ms", msn, wc.status, text(waited).c_str());
      return false;
    }
    assert_memory_equal(s.side.at(0), pattern(10, msn).data(), 10);
    since = posted;
  }
  return true;
}

// The time counts for each message: a slow receiver is not a dead one.
void every_message_has_its_own_time(void**) {
  for (const Setup& setup : kSetups)
    for (int rounds = 1; !a_slow_receiver_lives(setup); ++rounds) assert_true(rounds < 50);
}

// The time of a message is over before all of it has come, and it gets its receive after all. The next one waits as
// long as ever.
void a_wait_that_was_over_does_not_shorten_the_next(void**) {
  for (const bool initiator : {true, false}) {
    const Setup setup{.initiator = initiator, .crc = true};  // with a CRC nothing is said of it before it is whole
    test::expect_to_last(kReceive, name_of(setup), [&setup] {
      Scene s(setup, 8192);
      s.open_responder();
      const Bytes first = s.peer->frame(send_segment(1, pattern(20)));
      s.peer->raw(slice(first, 0, 30));
      poll(nullptr, 0, 2 * static_cast<int>(kReceive.count()));
      assert_int_equal(s.side.state(), IBV_QPS_RTS);
      assert_int_equal(s.side.receive({s.side.sge(0, 50)}), 0);
      s.peer->raw(slice(first, 30, first.size() - 30));
      s.expect_completions("first", {{100, IBV_WC_SUCCESS}});
      const Bytes second = send_segment(2, pattern(20, 2));
      const auto begin = Clock::now();
      s.peer->send(second);
      s.peer->expect(answer_to(second, 1, 2, 2));
      return test::since(begin);
    });
  }
}

// The program lets Sends wait, as rdma_cm's rnr_retry_count 7 does.
void one_waits_as_long_as_its_sender_is_seen(void**) {
  for (const Setup& base : kSetups)
    for (const bool tcp : {false, true}) {
      Setup setup = base;
      setup.tcp = tcp;
      Scene s(setup, 8192);
      s.side.observer->patient = true;
      s.open_responder();
      s.peer->send(send_segment(1, pattern(20)));
      s.peer->expect_silence(3 * static_cast<int>(kReceive.count()));
      assert_int_equal(s.side.state(), IBV_QPS_RTS);
      assert_int_equal(s.side.receive({s.side.sge(0, 50)}), 0);
      s.expect_completions("late", {{100, IBV_WC_SUCCESS}});
      s.peer->send(send_segment(2, pattern(20)));
      if (tcp)
        s.peer->reset();
      else
        s.peer->close();
      s.expect_ended("gone");
      s.expect_completions("gone", {});
    }
}

// An end would stand behind octets that cannot come: the window is closed.
void no_longer_where_its_end_could_not_be_seen(void**) {
  for (const bool crc : {false, true})
    test::expect_to_last(kReceive, crc ? "CRC" : "no CRC", [crc] {
      Scene s(Setup{.initiator = true, .crc = crc, .tcp = true}, 8192);
      s.side.observer->patient = true;
      const auto begin = Clock::now();
      const Bytes first = send_segment(1, pattern(20));
      s.peer->send(first);
      s.peer->flood(write_segment(s.side.mr->stag(), s.side.address(0), pattern(4096)));
      s.peer->expect(answer_to(first, 1, 2, 2));
      const auto passed = test::since(begin);
      s.expect_event("hidden", IBV_EVENT_QP_REQ_ERR);
      s.expect_ended("hidden");
      return passed;
    });
}

// Who waits for the answer to a Read, which stands behind the Send, may post no receive before it.
void nor_before_an_answer(void**) {
  for (const Setup& setup : kSetups)
    test::expect_to_last(kReceive, name_of(setup), [&setup] {
      Scene s(setup, 8192);
      s.side.observer->patient = true;
      s.open_responder();
      assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {s.side.sge(0, 8)}, 0, 1), 0);
      s.peer->next();
      const Bytes ulpdu = send_segment(1, pattern(20));
      const auto begin = Clock::now();
      s.peer->send(ulpdu);
      s.peer->expect(answer_to(ulpdu, 1, 2, 2));
      const auto passed = test::since(begin);
      s.expect_completions("Read", {{1, IBV_WC_WR_FLUSH_ERR}});
      s.expect_event("Read", IBV_EVENT_QP_REQ_ERR);
      s.expect_ended("Read");
      return passed;
    });
}

// A plain responder (no peer-to-peer) whose initiator never speaks may at last speak first (docs/design/rdmap.md).
void a_responder_that_has_waited_long_enough(void**) {
  for (const bool crc : {false, true}) {
    const Setup setup{.crc = crc};
    test::expect_to_last(kResponder, name_of(setup), [&setup] {
      const auto begin = Clock::now();
      Scene s(setup, 8192);
      assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 8)}), 0);
      assert_int_equal(s.peer->next_segment().opcode, kSend);
      const auto passed = test::since(begin);
      s.expect_completions("spoke first", {{1, IBV_WC_SUCCESS}});
      // And then the initiator speaks all the same.
      assert_int_equal(s.side.receive({s.side.sge(0, 50)}), 0);
      s.peer->send(send_segment(1, pattern(20)));
      s.expect_completions("and listens", {{100, IBV_WC_SUCCESS}});
      return passed;
    });
  }
}

// Holds: MPA-60
// A peer that never speaks, though it promised an RTR: not a word is said to it, however long that takes.
void mpa_60_the_wait_for_the_rtr_is_bounded(void**) {
  static_assert(kRtr > 2 * kResponder);
  for (const auto forms : {std::uint8_t{7}, std::uint8_t{mpa::kRtrWrite}}) {
    const Setup setup{.crc = true, .peer_to_peer = true, .rtr = forms};
    test::expect_to_last(kRtr, name_of(setup), [&setup] {
      const auto begin = Clock::now();
      Scene s(setup, 8192);
      assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(64, 5)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
      assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(64, 5)}, 0, 0, 0, 2), 0);
      s.peer->expect_fin();
      const auto passed = test::since(begin);
      s.expect_completions("no RTR", {{1, IBV_WC_RETRY_EXC_ERR}, {2, IBV_WC_WR_FLUSH_ERR}});
      s.expect_ended("no RTR");
      return passed;
    });
  }
}

// The peer takes our FIN and stays silent.
void silence_after_our_fin_is_bounded(void**) {
  for (const bool tcp : {false, true})
    for (const bool initiator : {false, true}) {
      const Setup setup{.initiator = initiator, .crc = tcp, .tcp = tcp};
      test::expect_to_last(kClose, name_of(setup), [&setup] {
        Scene s(setup, 8192);
        s.open_responder();
        if (!setup.initiator) {
          s.peer->send(read_request(1, 1, 0, 0, 0, 0));
          s.peer->next();
        }
        const auto begin = Clock::now();
        s.side.qp->disconnect(true);
        s.peer->expect_fin();
        s.expect_ended("silence");
        const auto passed = test::since(begin);
        s.expect_completions("silence", {});
        return passed;
      });
    }
}

// A peer that does not read cannot hold the close up for ever.
void a_full_socket_does_not_hold_the_close(void**) {
  for (const bool tcp : {false, true}) {
    Scene s(Setup{.initiator = true, .tcp = tcp}, 16u << 20);
    assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 16u << 20)}), 0);
    s.side.qp->disconnect(true);
    s.expect_ended("full");
    s.expect_completions("full", {{1, IBV_WC_WR_FLUSH_ERR}});
    bool reset = false;
    assert_true(s.peer->discard_until_end(&reset) < (16u << 20));
  }
}

// Nor does our kernel keep for long what it does not take.
void what_a_peer_does_not_take_is_dropped(void**) {
  test::expect_to_last(kClose, "dropped", [] {
    Scene s(Setup{.initiator = true, .tcp = true}, 16u << 20);
    assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 16u << 20)}), 0);
    const auto begin = Clock::now();
    s.side.qp->disconnect(true);
    s.expect_ended("full");
    s.expect_completions("full", {{1, IBV_WC_WR_FLUSH_ERR}});
    s.peer->expect_forgotten();
    const auto passed = test::since(begin);
    bool reset = false;
    s.peer->discard_until_end(&reset);
    assert_true(reset);
    return passed;
  });
}

// The same for one that has ended its own direction.
void nor_what_a_peer_that_has_ended_does_not_take(void**) {
  Scene s(Setup{.initiator = true, .tcp = true}, 16u << 20);
  assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 16u << 20)}), 0);
  s.peer->shut_down();
  s.expect_ended("half closed");
  s.peer->expect_forgotten();
}

// Nor can it hold up a Terminate, where a message of its own waits for a receive, and one is posted then.
void a_full_socket_does_not_hold_the_terminate(void**) {
  constexpr std::uint32_t kOctets = 1 << 20;
  for (const bool crc : {false, true})
    test::expect_to_last(kClose, crc ? "CRC" : "no CRC", [crc] {
      for (;;) {
        Scene s(Setup{.initiator = true, .crc = crc}, kOctets);
        s.peer->send(send_segment(1, pattern(20)));
        s.peer->wait_until_read();
        const auto begin = Clock::now();
        engine().acquire();  // the second is met while the first is not sent yet
        assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, kOctets)}, 0, 0, 0, 1), 0);
        assert_int_equal(s.side.send(IBV_WR_SEND, {ibv_sge{s.side.address(0), 8, 0x00bad000}}, 0, 0, 0, 2), 0);
        engine().leave();
        EXPECT("Terminate", s.side.reaches(IBV_QPS_ERR));
        const int event = s.side.event();
        // This program got no CPU, and the wait for a receive was over first.
        if (event == IBV_EVENT_QP_REQ_ERR) continue;
        assert_int_equal(event, IBV_EVENT_QP_FATAL);
        assert_int_equal(s.side.receive({s.side.sge(0, 64)}), 0);
        s.expect_completions("Terminate",
                             {{1, IBV_WC_WR_FLUSH_ERR}, {2, IBV_WC_LOC_PROT_ERR}, {100, IBV_WC_WR_FLUSH_ERR}});
        return test::since(begin);
      }
    });
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits(text(kClose).c_str(), text(kReceive).c_str(), text(kResponder).c_str());
  setenv("ETHERWARP_RTR_TIMEOUT_MS", text(kRtr).c_str(), 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(ddp_11_nobody_posts_one),
      cmocka_unit_test(an_end_behind_a_message_that_waits),
      cmocka_unit_test(an_immediate_for_which_nobody_posts_one),
      cmocka_unit_test(every_message_has_its_own_time),
      cmocka_unit_test(a_wait_that_was_over_does_not_shorten_the_next),
      cmocka_unit_test(one_waits_as_long_as_its_sender_is_seen),
      cmocka_unit_test(no_longer_where_its_end_could_not_be_seen),
      cmocka_unit_test(nor_before_an_answer),
      cmocka_unit_test(a_responder_that_has_waited_long_enough),
      cmocka_unit_test(mpa_60_the_wait_for_the_rtr_is_bounded),
      cmocka_unit_test(silence_after_our_fin_is_bounded),
      cmocka_unit_test(a_full_socket_does_not_hold_the_close),
      cmocka_unit_test(what_a_peer_does_not_take_is_dropped),
      cmocka_unit_test(nor_what_a_peer_that_has_ended_does_not_take),
      cmocka_unit_test(a_full_socket_does_not_hold_the_terminate),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
