// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What holds a sender back, and what it does with reports: windows, credits, RNR, congestion, errors
// (docs/protocol/reliable-datagrams.md sections 7 to 9).
#include <algorithm>

#include "tests/llp/rd_scene.h"

using namespace ewarp;
using namespace ewarp::rdscene;

namespace {

// --- section 7: flow control ---

void window_bounds_what_is_sent(void**) {
  Scene s;
  Open o = s.offer();
  o.window = {3, 3};
  s.peer_window = {3, 3};
  s.establish(o);
  s.send(7, 10, 10);
  assert_int_equal(s.heard.size(), 3);
  s.quiet();
  s.acked[0] += 1;
  s.say_ack();
  s.expect(Type::req);
  s.silence();
  s.acked[0] += 1;
  s.peer_window = {1, 1};  // smaller, but what was permitted stays so
  s.say_ack();
  s.silence();
  s.peer_window = {5, 5};
  s.say_ack();
  assert_int_equal(s.heard.size(), 3);
}

// Holds: RD-9
void credits_bound_messages(void**) {
  Scene s;
  Open o = s.offer();
  o.msn_limit = s.peer_limit = 5;
  s.establish(o);
  s.add(Lane::req, {7, false, 5, 10, {}});
  s.add(Lane::req, {7, true, {}, 10, {}});  // the rest of a message needs none
  s.add(Lane::req, {8, true, 6, 10, {}});
  s.wake();
  s.expect(Type::req);
  assert_true(s.expect(Type::req).has(flag::kAckNow));
  s.silence();
  s.acked[0] += 2;
  s.say_ack();
  s.silence();
  s.peer_limit = 6;
  s.say_ack();
  s.expect(Type::req);
  // Without the option they do not count.
  Scene t;
  o.options = 0;
  t.establish(o);
  t.add(Lane::req, {8, true, 600, 10, {}});
  t.wake();
  t.expect(Type::req);
}

// Holds: RD-9
void lack_of_credit_is_asked_about(void**) {
  Scene s;
  Open o = s.offer();
  o.msn_limit = s.peer_limit = 0;
  s.establish(o);
  s.add(Lane::req, {8, true, 1, 10, {}});
  s.wake();
  Time wait = 4 * kMillisecond;
  for (int i = 0; i < 15; ++i) {
    s.pass(wait);
    assert_true(s.expect(Type::ack).has(flag::kAckNow));
    s.silence();
    s.say_ack();  // alive, and still no credit
    wait = std::min(2 * wait, kSecond);
  }
  assert_true(s.endings.empty());
  s.peer_limit = 1;
  s.say_ack();
  s.expect(Type::req);
}

// Holds: RD-8
void rnr_pauses_the_request_lane(void**) {
  Scene s;
  s.establish();
  s.send(7, 6);
  s.quiet();
  const std::uint32_t una = s.acked[0];
  const std::uint32_t window = s.association().congestion().window();
  s.say_ack({una + 1, una + 2, una + 3, una + 4, una + 5}, flag::kRnr, 20);  // 10.24 ms
  s.send(8);                                                                 // not now
  s.add(Lane::rsp, {9, true, {}, 10, {}});
  s.wake();
  const Heard response = s.expect(Type::rsp);  // the other lane goes on
  s.acked[1] = response.psn() + 1;
  s.pass(2 * kMillisecond);
  s.say_ack({una + 1, una + 2, una + 3, una + 4, una + 5}, flag::kRnr, 20);  // a copy does not prolong it
  s.pass(8240 * kMicrosecond - 1);
  s.silence();
  s.pass(1);
  assert_true(s.expect(Type::req).psn() == una);
  assert_true(s.expect(Type::req).psn() == una + 6);
  assert_true(s.table.counters().timeouts == 0 && s.table.counters().losses == 0 &&
              s.association().congestion().window() >= window);
  // A receive was posted before the time was over.
  Scene t;
  t.establish();
  t.send(7, 2);
  t.quiet();
  t.say_ack({}, flag::kRnr, 0);
  ++t.acked[0];
  t.say_ack();
  t.send(8);
  assert_true(t.expect(Type::req).psn() == t.acked[0] + 1);
}

// Holds: RD-8
void rnr_retries_run_out(void**) {
  for (const unsigned retry : {0u, 2u, 7u}) {
    Config c;
    c.rnr_retry = static_cast<std::uint8_t>(retry);
    Scene s(c);
    s.establish();
    s.send(7);
    unsigned refusals = 0;
    while (s.endings.empty() && refusals < 50) {
      s.quiet();
      s.say_ack({}, flag::kRnr, 1);
      ++refusals;
      s.pass(11 * kMicrosecond);
    }
    if (retry == 7) {
      assert_true(s.endings.empty());
      continue;
    }
    assert_int_equal(refusals, retry + 1);
    assert_true(s.endings[0].why == Ending::receiver_not_ready && s.endings[0].message == 7);
    assert_true(s.heard.back().type() == Type::reset);
  }
}

// The datagram that ends the association says more behind that.
void the_last_refusal_echoes_a_mark(void**) {
  Config c;
  c.rnr_retry = 0;
  Scene s(c);
  s.establish();
  s.send(7);
  s.send(8);
  s.quiet();
  ++s.acked[0];
  s.say_ack({}, flag::kRnr | flag::kCongestion, 1);
  assert_int_equal(s.endings.size(), 1);
  assert_true(s.endings[0].why == Ending::receiver_not_ready && s.endings[0].message == 8);
  assert_int_equal(s.table.counters().losses, 0);
}

// --- section 8: congestion ---

void initial_window_and_its_growth(void**) {
  Scene s;
  s.establish();
  s.pass(kSecond);  // idle: not more than the initial window
  s.send(7, 100, 1300);
  assert_int_equal(s.heard.size(), 10);
  s.quiet();
  s.acked[0] += 2;
  s.say_ack();
  assert_int_equal(s.heard.size(), 4);  // two acknowledged, two more for the growth
}

// On the loopback a segment may have 65507 octets and most have few.
void small_segments_share_the_window_of_large_ones(void**) {
  Config c;
  c.max_seg = 65507;
  Scene s(c);
  Open o = s.offer();
  o.max_seg = 65507;
  s.establish(o);
  s.pass(kSecond);
  s.send(7, 200, 1300);
  assert_in_range(s.heard.size(), 45, 52);  // a burst of 64 KiB
  s.pass(kMillisecond);
  assert_in_range(s.heard.size(), 90, 101);  // two segments of 65507
}

void an_idle_sender_begins_anew(void**) {
  Scene s;
  s.establish();
  for (int i = 0; i < 4; ++i) {
    s.send(7, 10, 1300);
    s.acked[0] += 10;
    s.say_ack();
  }
  assert_true(s.association().congestion().window() > 11 * 1472);
  s.quiet();
  s.pass(kSecond);
  s.send(7, 100, 1300);
  assert_int_equal(s.heard.size(), 10);
}

// Holds: RD-15
void losses_halve_the_window_once_a_round_trip(void**) {
  Scene s;
  s.establish();
  s.pass(kSecond);
  s.send(7, 100, 1300);
  const auto sent = static_cast<std::uint32_t>(s.heard.size());
  s.quiet();
  const std::uint32_t una = s.acked[0], last = una + sent - 1;
  assert_true(sent > 9);
  const std::uint32_t before = s.association().congestion().window();
  s.say_ack({una + 1, una + 2, una + 3});
  const std::uint32_t after = s.association().congestion().window();
  assert_true(after >= before / 2 - 1472 && after <= before / 2 + 2 * 1472);
  assert_int_equal(s.table.counters().losses, 1);
  // una + 4 too, and all behind it up to the last that was sent before: the same round trip.
  s.say_ack({una + 1, una + 2, una + 3, una + 5, una + 6, una + 7, una + 8, last});
  assert_int_equal(s.table.counters().losses, 1);
}

// Holds: RD-15
void congestion_echo_counts_as_a_loss(void**) {
  Scene s;
  s.establish();
  s.pass(kSecond);
  s.send(7, 100, 1300);
  const auto sent = static_cast<std::uint32_t>(s.heard.size());
  s.quiet();
  const std::uint32_t first = s.acked[0];
  const std::uint32_t before = s.association().congestion().window();
  for (int i = 0; i < 3; ++i) {  // three datagrams carry the echo of one mark
    s.acked[0] += 1;
    s.say_ack({}, flag::kCongestion);
  }
  assert_int_equal(s.table.counters().losses, 1);
  const std::uint32_t halved = s.association().congestion().window();
  s.acked[0] = first + sent;  // up to the last that was under way: still that mark
  s.say_ack({}, flag::kCongestion);
  assert_int_equal(s.table.counters().losses, 1);
  assert_true(s.association().congestion().window() >= halved);
  assert_true(s.association().congestion().window() < before);
  for (const Heard& h : s.heard) assert_false(h.has(flag::kAgain));
}

void bursts_are_bounded(void**) {
  Config c;
  c.burst = 4000;
  Scene s(c);
  s.establish();
  s.pass(kSecond);
  s.send(7, 9, 1300);
  assert_int_equal(s.heard.size(), 3);
  s.pass(kMillisecond);
  assert_int_equal(s.heard.size(), 9);
}

// After a timeout one segment fills the window. A request whose answer is an error report would fill it for ever at
// both ends: each lane may always have one segment under way.
void a_full_window_does_not_hold_the_report(void**) {
  Scene s;
  s.establish();
  s.send(7);
  s.pass(20 * kMillisecond);
  s.quiet();
  s.verdict = [&](const Incoming& in) {
    s.add(Lane::rsp, {0, true, {}, 0, in.psn});
    return Take::bad;
  };
  s.say_data(Lane::req, kPeerIsn[0], segment(true));
  assert_true(s.expect(Type::rsp).data().error_psn == kPeerIsn[0]);
}

// --- section 9: error reports, as requester ---

// Holds: RD-11
void a_report_names_the_message(void**) {
  Scene s;
  s.establish();
  s.send(7, 2);
  s.send(8, 3);
  s.send(9);
  s.quiet();
  const std::uint32_t first = s.acked[0];
  s.acked[0] = first + 3;  // up to the bad one, not over it
  s.say_data(Lane::rsp, kPeerIsn[1], untagged(true), flag::kAckNow, false, first + 3);
  assert_true((s.acknowledged_messages == std::vector<std::uint64_t>{7}));
  assert_true((s.reported_messages == std::vector<std::uint64_t>{8}));
  assert_true(s.expect(Type::ack).ack().standing.ack[1] == kPeerIsn[1] + 1);
  s.acked[0] = first + 6;
  s.say_ack();
  assert_true((s.acknowledged_messages == std::vector<std::uint64_t>{7, 9}));  // 8 is not done
}

// While the error barrier stands, what is behind the bad segment is acknowledged by SACK only: no loss.
void a_report_is_progress_for_its_segment(void**) {
  Scene s;
  s.establish();
  s.send(8);
  for (std::uint64_t m = 9; m < 14; ++m) s.send(m);
  s.quiet();
  const std::uint32_t first = s.acked[0];
  s.say_data(Lane::rsp, kPeerIsn[1], untagged(true), flag::kAckNow, false, first);
  s.expect(Type::ack);
  s.say_ack({first + 1, first + 2, first + 3, first + 4, first + 5});
  s.silence();
  assert_int_equal(s.table.counters().losses, 0);
}

// The memory of a reported message is its owner's again: what is repeated of it has no payload.
void what_was_reported_is_not_read_again(void**) {
  Scene s;
  s.establish();
  s.send(8, 3);
  s.quiet();
  const std::uint32_t first = s.acked[0];
  s.say_data(Lane::rsp, kPeerIsn[1], untagged(true), 0, false, first);
  s.readable = false;
  s.pass(100 * kMillisecond);
  bool last = false;
  for (const Heard& h : s.heard)
    if (h.type() == Type::req) {
      assert_int_equal(h.data().segment.size(), 14);
      last |= (std::to_integer<unsigned>(h.data().segment[0]) & 0x40) != 0;
    }
  s.quiet();
  s.acked[0] = first + 2;
  s.say_ack();
  s.pass(100 * kMillisecond);
  assert_true(s.endings.empty());
}

void a_report_about_something_acknowledged(void**) {
  Scene s;
  s.establish();
  s.send(8);
  ++s.acked[0];
  s.say_ack();
  s.say_data(Lane::rsp, kPeerIsn[1], untagged(true), 0, false, s.acked[0] - 1);  // a Read that failed later
  assert_true((s.reported_messages == std::vector<std::uint64_t>{0}));
}

void an_unreadable_source_ends_it(void**) {
  Scene s;
  s.establish();
  s.readable = false;
  s.send(8);
  assert_true(s.endings[0].why == Ending::source_gone && s.endings[0].message == 8);
  s.expect(Type::reset);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(window_bounds_what_is_sent),
      cmocka_unit_test(credits_bound_messages),
      cmocka_unit_test(lack_of_credit_is_asked_about),
      cmocka_unit_test(rnr_pauses_the_request_lane),
      cmocka_unit_test(rnr_retries_run_out),
      cmocka_unit_test(the_last_refusal_echoes_a_mark),
      cmocka_unit_test(initial_window_and_its_growth),
      cmocka_unit_test(small_segments_share_the_window_of_large_ones),
      cmocka_unit_test(an_idle_sender_begins_anew),
      cmocka_unit_test(losses_halve_the_window_once_a_round_trip),
      cmocka_unit_test(congestion_echo_counts_as_a_loss),
      cmocka_unit_test(bursts_are_bounded),
      cmocka_unit_test(a_full_window_does_not_hold_the_report),
      cmocka_unit_test(a_report_names_the_message),
      cmocka_unit_test(a_report_is_progress_for_its_segment),
      cmocka_unit_test(what_was_reported_is_not_read_again),
      cmocka_unit_test(a_report_about_something_acknowledged),
      cmocka_unit_test(an_unreadable_source_ends_it),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
