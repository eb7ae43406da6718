// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a receiver owes: lanes, acknowledgements, SACK, receive buffers, error reports
// (docs/protocol/reliable-datagrams.md sections 4, 5, 7 and 9).
#include "tests/llp/no_memory.h"
#include "tests/llp/rd_scene.h"

using namespace ewarp;
using namespace ewarp::rdscene;

namespace {

constexpr std::uint32_t kReq = kPeerIsn[0], kRsp = kPeerIsn[1];

// --- section 4: lanes ---

// Holds: RD-10
void lanes_do_not_wait_for_each_other(void**) {
  Scene s;
  s.establish();
  s.verdict = [](const Incoming& in) { return in.lane == Lane::req ? Take::no_receive : Take::accepted; };
  s.say_data(Lane::req, kReq, untagged(true));
  s.say_data(Lane::rsp, kRsp, segment(true));
  assert_true(s.delivered.size() == 1 && s.delivered[0].lane == Lane::rsp);
}

// --- section 5: when to acknowledge ---

void one_segment_is_acknowledged_after_a_while(void**) {
  Scene s;
  s.establish();
  s.say_data(Lane::req, kReq, segment(true));
  s.pass(kMillisecond - 1);
  s.silence();
  s.pass(1);
  const Heard h = s.expect(Type::ack);
  assert_true(h.ack().standing.ack[0] == kReq + 1 && h.ack().delay_us == 1000 && h.ack().standing.window[0] == 256);
  s.pass(5 * kSecond);
  s.silence();
}

void eight_segments_are_acknowledged_at_once(void**) {
  Scene s;
  s.establish();
  for (std::uint32_t i = 0; i < 7; ++i) s.say_data(Lane::req, kReq + i, segment(true));
  s.silence();
  s.say_data(Lane::req, kReq + 7, segment(true));
  assert_true(s.expect(Type::ack).ack().standing.ack[0] == kReq + 8);
}

void some_things_are_acknowledged_at_once(void**) {
  Scene s;
  s.establish();
  const auto ack_of = [&] { return s.expect(Type::ack).ack().standing.ack[0]; };
  s.say_data(Lane::req, kReq, segment(true), flag::kAckNow);
  assert_true(ack_of() == kReq + 1);
  s.say_data(Lane::req, kReq, segment(true));  // twice
  assert_true(ack_of() == kReq + 1);
  s.say_data(Lane::req, kReq + 1 + 256, segment(true));  // beyond the window
  assert_true(ack_of() == kReq + 1);
  assert_int_equal(s.table.held(), 0);
  s.say_data(Lane::req, kReq + 2, segment(true));  // ahead
  assert_true(ack_of() == kReq + 1);
  s.say_data(Lane::req, kReq + 1, segment(true));  // the hole
  assert_true(ack_of() == kReq + 3);
  s.say_data(Lane::req, kReq + 3, segment(true), 0, true);  // a mark of congestion
  assert_true(ack_of() == kReq + 4);
  s.silence();
  assert_int_equal(s.delivered.size(), 4);
  s.say_ack({}, flag::kAckNow);
  s.expect(Type::ack);
}

void congestion_is_echoed_three_times(void**) {
  Scene s;
  s.establish();
  s.say_data(Lane::req, kReq, segment(true), 0, true);
  for (std::uint32_t i = 1; i < 6; ++i) {
    assert_true(s.expect(Type::ack).has(flag::kCongestion) == (i <= 3));
    s.say_data(Lane::req, kReq + i, segment(true), flag::kAckNow);
  }
}

void acknowledgements_ride_on_data(void**) {
  Scene s;
  s.establish();
  s.say_data(Lane::req, kReq, segment(true));
  s.send(5);
  assert_true(s.expect(Type::req).data().standing.ack[0] == kReq + 1);
  ++s.acked[0];
  s.say_ack();
  s.pass(2 * kMillisecond);
  s.silence();
}

// Holds: RD-5
void sack_says_what_is_ahead(void**) {
  Scene s;
  s.establish();
  for (const std::uint32_t k : {1u, 2u, 5u, 33u}) s.say_data(Lane::req, kReq + k, segment(true));
  s.quiet();
  s.say_data(Lane::rsp, kRsp + 4, segment(true));
  const Heard h = s.expect(Type::ack);
  const auto& sack = h.ack().sack;
  assert_true(sack[0].bits() == 64 && sack[1].bits() == 32);
  for (std::size_t k = 0; k < 64; ++k) assert_true(sack[0].test(k) == (k == 0 || k == 1 || k == 4 || k == 32));
  for (std::size_t k = 0; k < 32; ++k) assert_true(sack[1].test(k) == (k == 3));
  assert_true(s.delivered.empty() && s.table.held() > 0);
  s.say_data(Lane::req, kReq, segment(true));
  assert_int_equal(s.delivered.size(), 3);
  for (std::uint32_t i = 0; i < 3; ++i) assert_true(s.delivered[i].psn == kReq + i);
}

// Holds: RD-3
void copies_are_delivered_once(void**) {
  Scene s;
  s.establish();
  s.can_place = true;
  for (int copies = 0; copies < 3; ++copies)
    for (const std::uint32_t k : {3u, 1u, 0u, 2u}) s.say_data(Lane::req, kReq + k, segment(true));
  assert_int_equal(s.delivered.size(), 4);
  for (std::uint32_t i = 0; i < 4; ++i) assert_true(s.delivered[i].psn == kReq + i);
  assert_true((s.placed == std::vector<std::uint32_t>{kReq + 3, kReq + 1}));
  for (std::uint32_t i = 0; i < 4; ++i) assert_true(s.delivered[i].placed == (i % 2 == 1));
  assert_int_equal(s.table.held(), 0);
}

// A tagged segment ahead of its turn may be placed; its header alone is kept.
void placed_ahead(void**) {
  Scene s;
  s.establish();
  s.can_place = true;
  s.say_data(Lane::req, kReq + 1, segment(true, 1000));
  assert_true(s.placed == std::vector<std::uint32_t>{kReq + 1});
  assert_true(s.table.held() < 14 + 200);
  s.say_data(Lane::req, kReq + 2, untagged(true, 1000));  // never placed ahead
  assert_int_equal(s.placed.size(), 1);
  assert_true(s.table.held() > 1018);
  s.say_data(Lane::req, kReq, segment(false));
  assert_true(s.delivered.size() == 3 && !s.delivered[0].placed && s.delivered[1].placed && !s.delivered[2].placed);
}

void memory_for_what_is_ahead_is_bounded(void**) {
  // One segment costs this; so much may be held, and no octet more.
  const std::size_t one = sizeof(Held) + segment(true, 1000).size();
  for (const std::size_t most : {one - 1, one}) {
    Config exact;
    exact.max_held = most;
    Scene s(exact);
    s.establish();
    s.say_data(Lane::req, kReq + 1, segment(true, 1000));
    assert_int_equal(s.table.counters().not_held, most < one);
    assert_int_equal(s.table.held(), most < one ? 0 : one);
  }
  Config c;
  c.max_held = 3000;
  Scene s(c);
  s.establish();
  for (std::uint32_t k = 1; k < 100; ++k) s.say_data(Lane::req, kReq + k, segment(true, 1000));
  assert_true(s.table.held() <= 3000 && s.table.counters().not_held > 90);
  for (std::uint32_t k = 0; k < 100; ++k) s.say_data(Lane::req, kReq + k, segment(true, 1000));
  assert_int_equal(s.delivered.size(), 100);
  assert_int_equal(s.table.held(), 0);
}

// What there is no memory for is lost, and the account of what is held stays right.
void no_memory_for_what_is_ahead(void**) {
  Scene s;
  s.establish();
  s.say_data(Lane::req, kReq + 1, segment(true));
  const std::size_t held = s.table.held();
  test::no_memory_for = 2 * sizeof(Held);  // what the lane's array grows to
  bool lost = false;
  try {
    s.say_data(Lane::req, kReq + 2, segment(true));
  } catch (const std::bad_alloc&) {
    lost = true;
  }
  assert_true(lost);
  assert_int_equal(s.table.held(), held);
  for (const std::uint32_t k : {2u, 0u}) s.say_data(Lane::req, kReq + k, segment(true));
  assert_int_equal(s.delivered.size(), 3);
  assert_int_equal(s.table.held(), 0);
}

// --- section 7: receive buffers ---

// Holds: RD-8
void no_receive(void**) {
  Config c;
  c.rnr_code = 20;
  Scene s(c);
  s.establish();
  bool posted = false;
  s.verdict = [&](const Incoming&) { return posted ? Take::accepted : Take::no_receive; };
  s.say_data(Lane::req, kReq, untagged(true));
  const Heard h = s.expect(Type::ack);
  assert_true(h.has(flag::kRnr) && h.d.prefix.aux == 20 && h.ack().standing.ack[0] == kReq);
  s.say_data(Lane::req, kReq + 1, untagged(true));  // kept; not another refusal
  const Heard second = s.expect(Type::ack);
  assert_true(!second.has(flag::kRnr) && second.ack().sack[0].test(0));
  s.say_data(Lane::req, kReq, untagged(true));  // comes again, is refused again
  assert_true(s.expect(Type::ack).has(flag::kRnr));
  posted = true;
  s.limit = 1005;
  s.table.receives_posted(s.now, s.association());
  const Heard after = s.expect(Type::ack);
  assert_true(!after.has(flag::kRnr) && after.ack().standing.ack[0] == kReq + 2 &&
              after.ack().standing.msn_limit == 1005);
  assert_int_equal(s.delivered.size(), 2);
}

// What comes in one go is answered once, and with data if there is some.
void a_batch_is_answered_once(void**) {
  Scene s;
  s.establish();
  const auto batch = [&](std::uint32_t from) {
    for (std::uint32_t i = 0; i < 20; ++i)
      s.say_data(Lane::req, from + i, segment(true), flag::kAckNow, false, {}, true);
    s.silence();
    s.table.finish(s.now);
  };
  batch(kReq);
  assert_true(s.expect(Type::ack).ack().standing.ack[0] == kReq + 20);
  s.silence();
  s.add(Lane::rsp, {55, true, {}, 100, {}});
  batch(kReq + 20);
  assert_true(s.expect(Type::rsp).data().standing.ack[0] == kReq + 40);
  s.silence();
  ++s.acked[1];
  // Where something was lost, nothing is saved.
  for (std::uint32_t i = 0; i < 3; ++i) {
    s.say_data(Lane::req, kReq + 41 + i, segment(true), flag::kAckNow, false, {}, true);
    const Heard ack = s.expect(Type::ack);
    assert_true(ack.ack().standing.ack[0] == kReq + 40 && ack.ack().sack[0].test(i));
  }
  s.silence();
}

void a_peer_leaves_in_the_middle_of_a_batch(void**) {
  Scene s;
  s.establish();
  s.say_data(Lane::req, kReq, segment(true), flag::kAckNow, false, {}, true);
  s.say_reset(s.own_tag, ResetReason::unspecified);
  assert_true(s.gone());
  s.table.finish(s.now);
  s.silence();
}

// Where the application is about to answer, its answer carries the acknowledgement; it need not come.
void an_acknowledgement_waits_for_an_answer(void**) {
  Scene s;
  s.establish();
  std::uint32_t next = kReq;
  const auto arrive = [&] {
    s.say_data(Lane::req, next++, segment(true), flag::kAckNow, false, {}, true);
    assert_true(s.table.finish(s.now, true));
    s.silence();
  };
  arrive();
  s.send(7);
  assert_true(s.expect(Type::req).data().standing.ack[0] == next);
  assert_true(s.table.finish(s.now, true));
  s.silence();
  assert_false(s.table.finish(s.now, true));
  ++s.acked[0];
  s.say_ack();
  // No answer until the next time.
  arrive();
  s.table.finish(s.now, true);
  assert_true(s.expect(Type::ack).ack().standing.ack[0] == next);
  s.silence();
  // There is no next time.
  arrive();
  s.pass(kMillisecond);
  assert_true(s.expect(Type::ack).ack().standing.ack[0] == next);
  s.table.finish(s.now);
  s.silence();
}

// What was refused is kept; when its copy is taken instead, nothing of it stays.
void refused_then_repeated(void**) {
  Scene s;
  s.establish();
  bool posted = false;
  s.verdict = [&](const Incoming&) { return posted ? Take::accepted : Take::no_receive; };
  s.say_data(Lane::req, kReq, untagged(true));
  assert_true(s.table.held() > 0);
  posted = true;
  s.say_data(Lane::req, kReq, untagged(true));
  assert_int_equal(s.delivered.size(), 1);
  assert_int_equal(s.table.held(), 0);
}

// Holds: RD-9
void granted_credits_are_never_taken_back(void**) {
  Scene s;
  s.limit = 10;
  s.establish();
  s.limit = 4;
  s.say_ack({}, flag::kAckNow);
  assert_true(s.expect(Type::ack).ack().standing.msn_limit == 10);
  s.limit = 11;
  s.say_ack({}, flag::kAckNow);
  assert_true(s.expect(Type::ack).ack().standing.msn_limit == 11);
}

// --- section 9: error reports, as receiver ---

// A segment that is found bad: its report is queued by the layer above.
void fail_at(Scene& s, std::uint32_t bad) {
  s.verdict = [&s, bad](const Incoming& in) {
    if (in.lane == Lane::rsp || in.psn != bad) return Take::accepted;
    s.add(Lane::rsp, {0, true, {}, 0, in.psn});
    return Take::bad;
  };
}

// Holds: RD-11
void barrier_stands_until_the_report_is_acknowledged(void**) {
  Scene s;
  s.establish();
  fail_at(s, kReq + 1);
  s.say_data(Lane::req, kReq, segment(false));
  s.say_data(Lane::req, kReq + 1, segment(false), flag::kAckNow);
  const Heard report = s.expect(Type::rsp);
  assert_true(report.data().error_psn == kReq + 1 && report.data().standing.ack[0] == kReq + 1);
  // The rest of the message, and the next one: kept, not delivered, not acknowledged.
  s.say_data(Lane::req, kReq + 2, segment(true));
  s.say_data(Lane::req, kReq + 3, segment(true));
  s.say_data(Lane::req, kReq + 1, segment(false));  // again: RD_ACK only
  while (!s.heard.empty()) assert_true(s.expect(Type::ack).ack().standing.ack[0] == kReq + 1);
  assert_int_equal(s.delivered.size(), 1);
  s.acked[1] = report.psn() + 1;
  s.say_ack();
  assert_true(s.expect(Type::ack).ack().standing.ack[0] == kReq + 4);
  assert_true(s.delivered.size() == 2 && s.delivered[1].psn == kReq + 3);
}

// Holds: RD-11
void skipping_ends_with_the_message(void**) {
  const struct {
    bool bad_is_last;
    std::uint32_t first_delivered;
  } kCases[] = {{true, 1}, {false, 3}};
  for (const auto& c : kCases) {
    Scene s;
    s.establish();
    fail_at(s, kReq);
    s.say_data(Lane::req, kReq, segment(c.bad_is_last), flag::kAckNow);
    s.acked[1] = s.heard.back().psn() + 1;
    s.say_ack();
    s.quiet();
    // What follows comes after the barrier: skipping does not depend on it having been kept.
    s.say_data(Lane::req, kReq + 1, segment(false));
    s.say_data(Lane::req, kReq + 2, segment(true));
    s.say_data(Lane::req, kReq + 3, segment(true), flag::kAckNow);
    assert_true(s.expect(Type::ack).ack().standing.ack[0] == kReq + 4);
    assert_true(!s.delivered.empty() && s.delivered[0].psn == kReq + c.first_delivered);
  }
}

void a_lost_report_is_repeated(void**) {
  Scene s;
  s.establish();
  fail_at(s, kReq);
  s.say_data(Lane::req, kReq, segment(true), flag::kAckNow);
  const Heard report = s.expect(Type::rsp);
  s.pass(4 * kMillisecond);
  const Heard again = s.expect(Type::rsp);
  assert_true(again.psn() == report.psn() && again.data().error_psn == kReq && again.has(flag::kAgain | flag::kAckNow));
  s.acked[1] = report.psn() + 1;
  s.say_ack();
  assert_true(s.expect(Type::ack).ack().standing.ack[0] == kReq + 1);
}

// Holds: RD-11
void errors_come_one_after_the_other(void**) {
  Scene s;
  s.establish();
  s.verdict = [&](const Incoming& in) {
    s.add(Lane::rsp, {0, true, {}, 0, in.psn});
    return Take::bad;
  };
  for (std::uint32_t i = 0; i < 3; ++i) s.say_data(Lane::req, kReq + i, segment(true));
  for (std::uint32_t i = 0; i < 3; ++i) {
    while (s.heard.front().type() == Type::ack) s.heard.pop_front();
    const Heard report = s.expect(Type::rsp);
    assert_true(report.data().error_psn == kReq + i);
    while (!s.heard.empty()) assert_true(s.expect(Type::ack).ack().standing.ack[0] == kReq + i);
    s.acked[1] = report.psn() + 1;
    s.say_ack();
  }
  assert_true(s.expect(Type::ack).ack().standing.ack[0] == kReq + 3);
}

// Responses queued before the fault was found go first.
void reports_keep_the_order_of_responses(void**) {
  Scene s;
  s.establish();
  s.add(Lane::rsp, {55, false, {}, 100, {}});
  s.add(Lane::rsp, {55, true, {}, 100, {}});
  fail_at(s, kReq);
  s.say_data(Lane::req, kReq, segment(true), flag::kAckNow);
  assert_false(s.expect(Type::rsp).data().error_psn.has_value());
  assert_false(s.expect(Type::rsp).data().error_psn.has_value());
  assert_true(s.expect(Type::rsp).data().error_psn == kReq);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(lanes_do_not_wait_for_each_other),
      cmocka_unit_test(one_segment_is_acknowledged_after_a_while),
      cmocka_unit_test(eight_segments_are_acknowledged_at_once),
      cmocka_unit_test(some_things_are_acknowledged_at_once),
      cmocka_unit_test(congestion_is_echoed_three_times),
      cmocka_unit_test(acknowledgements_ride_on_data),
      cmocka_unit_test(a_batch_is_answered_once),
      cmocka_unit_test(a_peer_leaves_in_the_middle_of_a_batch),
      cmocka_unit_test(an_acknowledgement_waits_for_an_answer),
      cmocka_unit_test(sack_says_what_is_ahead),
      cmocka_unit_test(copies_are_delivered_once),
      cmocka_unit_test(placed_ahead),
      cmocka_unit_test(memory_for_what_is_ahead_is_bounded),
      cmocka_unit_test(no_memory_for_what_is_ahead),
      cmocka_unit_test(no_receive),
      cmocka_unit_test(refused_then_repeated),
      cmocka_unit_test(granted_credits_are_never_taken_back),
      cmocka_unit_test(barrier_stands_until_the_report_is_acknowledged),
      cmocka_unit_test(skipping_ends_with_the_message),
      cmocka_unit_test(a_lost_report_is_repeated),
      cmocka_unit_test(errors_come_one_after_the_other),
      cmocka_unit_test(reports_keep_the_order_of_responses),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
