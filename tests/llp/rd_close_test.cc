// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The end of an association: docs/protocol/reliable-datagrams.md sections 10 and 11, rule by rule.
#include <algorithm>

#include "tests/llp/rd_scene.h"

using namespace ewarp;
using namespace ewarp::rdscene;

namespace {

// Holds: RD-12
void idle_close(void**) {
  Scene s;
  s.establish();
  s.pass(30 * kSecond - 1);
  s.silence();
  s.pass(1);
  const Heard h = s.expect(Type::close);
  assert_true(h.close().next == s.acked && h.close().ack == kPeerIsn && h.close().tag == kPeerTag);
  Time wait = 100 * kMillisecond;
  for (int i = 1; i < 12; ++i) {
    s.pass(wait);
    expect_octets(s.expect(Type::close).octets, h.octets, "repeated");
    wait = std::min(2 * wait, 4 * kSecond);
  }
  s.pass(wait);
  s.silence();
  assert_true(s.gone() && s.endings.size() == 1 && s.endings[0].why == Ending::idle);
}

// Holds: RD-20
void not_idle(void**) {
  Scene s;
  s.establish();
  s.pass(20 * kSecond);
  s.send(3);
  s.expect(Type::req);
  ++s.acked[0];
  s.say_ack();
  s.pass(29 * kSecond);
  s.silence();
  s.waits = true;  // a Read without its response
  s.pass(2 * kSecond);
  for (const Heard& h : s.heard) assert_true(h.type() == Type::ack);
}

void close_is_answered_when_the_numbers_agree(void**) {
  Scene s;
  s.establish();
  s.say_close();
  const Heard h = s.expect(Type::close);
  assert_true(h.has(flag::kAcknowledgement) && h.close().next == s.acked && h.close().ack == kPeerIsn);
  assert_true(s.gone());
  s.silence();
}

// Holds: RD-20
void close_is_refused_otherwise(void**) {
  Scene s;
  s.establish();
  ++s.peer_next[0];  // a segment of the peer's that we do not have
  s.say_close();
  s.expect(Type::ack);
  assert_false(s.gone());
  s.peer_next = kPeerIsn;
  s.waits = true;  // not idle
  s.say_close();
  s.expect(Type::ack);
  assert_false(s.gone());
}

// The acknowledgement in a CLOSE counts: the last of our WRs is done by it.
void close_carries_the_last_acknowledgement(void**) {
  Scene s;
  s.establish();
  s.send(5);
  s.expect(Type::req);
  ++s.acked[0];
  s.say_close();
  assert_true(s.acknowledged_messages == std::vector<std::uint64_t>{5});
  assert_true(s.expect(Type::close).has(flag::kAcknowledgement));
  assert_true(s.gone());
}

void close_sent_is_cancelled_by_what_arrives(void**) {
  Scene s;
  s.establish();
  s.pass(30 * kSecond);
  s.expect(Type::close);
  s.say_data(Lane::req, kPeerIsn[0], segment(true), flag::kAckNow);
  s.expect(Type::ack);
  assert_true(s.association().state() == Association::State::established);
  assert_int_equal(s.delivered.size(), 1);
}

// Holds: RD-12
void close_sent_ends(void**) {
  for (const int how : {0, 1, 2, 3}) {
    Scene s;
    s.establish();
    s.pass(30 * kSecond);
    s.expect(Type::close);
    if (how == 0) s.say_close(flag::kAcknowledgement);
    if (how == 1) s.say_close();  // crossing
    if (how == 2) s.say_reset(kPeerTag, ResetReason::unknown, flag::kReflected);
    if (how == 3) {
      Open o = s.offer();
      o.initial_tag = 5;
      s.say_open(o);  // without a challenge
    }
    assert_true(s.endings.size() == 1 && s.endings[0].why == Ending::idle);
    if (how == 1) assert_true(s.expect(Type::close).has(flag::kAcknowledgement));
    if (how == 3) assert_false(s.expect(Type::openack).has(flag::kChallenge));
    assert_true(s.gone() == (how != 3));
    s.silence();
  }
}

// Holds: RD-12
void work_in_close_sent_opens_anew(void**) {
  Scene s;
  s.establish();
  s.pass(30 * kSecond);
  s.expect(Type::close);
  s.send(6);
  s.silence();
  s.say_close(flag::kAcknowledgement);
  const Heard h = s.expect(Type::open);
  assert_true(h.open().initial_tag != s.own_tag);
  assert_true(s.endings.size() == 1);
}

// Something late has cancelled our CLOSE, but the peer has answered it and forgotten.
void late_close_acknowledgement(void**) {
  Scene s;
  s.establish();
  s.pass(30 * kSecond);
  s.expect(Type::close);
  s.say_ack();
  assert_true(s.association().state() == Association::State::established);
  s.say_close(flag::kAcknowledgement);
  assert_true(s.gone() && s.endings.back().why == Ending::idle);
}

// --- RESET ---

// Holds: RD-14, RD-18
void resets(void**) {
  const struct {
    bool own, reflected;
    bool counts;
  } kCases[] = {{true, false, true}, {false, true, true}, {false, false, false}};
  for (const auto& c : kCases) {
    Scene s;
    s.establish();
    s.send(5);
    s.expect(Type::req);
    s.say_reset(c.own ? s.own_tag : kPeerTag, ResetReason::qp_gone, c.reflected ? flag::kReflected : 0);
    assert_true(s.gone() == c.counts);
    if (c.counts) assert_true(s.endings.back().why == Ending::reset && s.endings.back().reason == ResetReason::qp_gone);
    s.silence();
  }
}

// Holds: RD-18
void what_was_never_sent_opens_a_new_association(void**) {
  Scene s;
  Open o = s.offer();
  o.window = {1, 1};
  s.peer_window = {1, 1};
  s.establish(o);
  s.send(5);
  s.send(6);
  s.expect(Type::req);
  s.silence();
  s.say_reset(s.own_tag, ResetReason::unspecified);
  assert_true(s.endings.back().why == Ending::reset);
  s.expect(Type::open);
  assert_int_equal(s.jobs[0].size(), 1);
}

void queue_pair_goes(void**) {
  Scene s;
  s.establish();
  s.table.reset_qp(s.now, kOwnQpn + 1);
  s.silence();
  s.table.reset_qp(s.now, kOwnQpn);
  assert_true(s.expect(Type::reset).reset() == (Reset{kPeerTag, ResetReason::qp_gone}));
  assert_true(s.gone() && s.endings.back().why == Ending::local);
}

// It is destroyed: whoever waits for nothing is told in peace, once; the others, that it has gone.
void queue_pair_leaves(void**) {
  Scene s;
  s.establish();
  for (int i = 0; i < 2; ++i) {
    s.table.leave_qp(s.now, kOwnQpn);
    if (i == 0) s.expect(Type::close);
    s.silence();
    assert_true(s.association().state() == Association::State::close_sent);
  }
  Scene busy;
  busy.establish();
  busy.send(7);
  busy.quiet();
  busy.table.leave_qp(busy.now, kOwnQpn);
  assert_true(busy.expect(Type::reset).reset().reason == ResetReason::qp_gone);
  assert_true(busy.gone());
}

void violations(void**) {
  for (const int what : {0, 1, 2, 3}) {
    Scene s;
    s.establish();
    if (what == 0) {
      ++s.acked[0];  // of what was never sent
      s.say_ack();
    } else if (what == 1) {
      s.say_data(Lane::req, kPeerIsn[0], Bytes(13, std::byte{0}));
    } else {
      s.verdict = [](const Incoming&) { return Take::violation; };
      if (what == 3) s.say_data(Lane::rsp, kPeerIsn[1] + 1, segment(true));
      s.quiet();
      s.say_data(what == 2 ? Lane::req : Lane::rsp, kPeerIsn[what == 2 ? 0 : 1], segment(true));
    }
    assert_true(s.expect(Type::reset).reset() == (Reset{kPeerTag, ResetReason::violation}));
    assert_true(s.gone() && s.endings.back().why == Ending::violation);
    assert_int_equal(s.table.held(), 0);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(idle_close),
      cmocka_unit_test(not_idle),
      cmocka_unit_test(close_is_answered_when_the_numbers_agree),
      cmocka_unit_test(close_is_refused_otherwise),
      cmocka_unit_test(close_carries_the_last_acknowledgement),
      cmocka_unit_test(close_sent_is_cancelled_by_what_arrives),
      cmocka_unit_test(close_sent_ends),
      cmocka_unit_test(work_in_close_sent_opens_anew),
      cmocka_unit_test(late_close_acknowledgement),
      cmocka_unit_test(resets),
      cmocka_unit_test(what_was_never_sent_opens_a_new_association),
      cmocka_unit_test(queue_pair_goes),
      cmocka_unit_test(queue_pair_leaves),
      cmocka_unit_test(violations),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
