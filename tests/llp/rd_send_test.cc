// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a sender owes: flags, retransmission, probes (docs/protocol/reliable-datagrams.md sections 5
// and 6).
#include <algorithm>

#include "tests/llp/rd_scene.h"

using namespace ewarp;
using namespace ewarp::rdscene;

namespace {

// --- section 5: flag A, and what never moves backwards ---

void the_last_segment_asks_for_an_acknowledgement(void**) {
  Scene s;
  s.establish();
  s.send(7, 3);
  for (int i = 0; i < 3; ++i) assert_true(s.expect(Type::req).has(flag::kAckNow) == (i == 2));
  s.silence();
}

void quarters_of_the_window_ask_too(void**) {
  Scene s;
  Open o = s.offer();
  o.window = {8, 8};
  s.peer_window = {8, 8};
  s.establish(o);
  s.send(7, 20, 10);
  for (int i = 0; i < 8; ++i) assert_true(s.expect(Type::req).has(flag::kAckNow) == (i % 2 == 1));
  s.silence();
}

void old_datagrams_change_nothing(void**) {
  Scene s;
  s.establish();
  s.send(7, 4);
  s.quiet();
  const auto start = s.acked;
  s.acked[0] += 3;
  s.peer_limit = 2000;
  s.say_ack();
  s.acked = start;  // late
  s.peer_limit = 1;
  s.peer_window = {0, 0};
  s.say_ack();
  s.add(Lane::req, {8, true, 1999, 10, {}});
  s.wake();
  assert_true(s.expect(Type::req).psn() == start[0] + 4);
  assert_true(s.acknowledged_messages.empty());
}

void a_message_is_done_with_its_last_segment(void**) {
  Scene s;
  s.establish();
  s.send(7, 3);
  s.send(8);
  s.acked[0] += 2;
  s.say_ack({s.acked[0] + 1});  // SACK does not complete anything
  assert_true(s.acknowledged_messages.empty());
  s.acked[0] += 2;
  s.say_ack();
  assert_true((s.acknowledged_messages == std::vector<std::uint64_t>{7, 8}));
}

// --- section 6: loss ---

// Holds: RD-5
void sack_finds_the_loss_once(void**) {
  Scene s;
  s.establish();
  s.send(7, 6);
  s.quiet();
  const std::uint32_t una = s.acked[0];
  s.say_ack({una + 1, una + 2});
  s.silence();  // may be reordering
  s.say_ack({una + 1, una + 2, una + 3});
  const Heard again = s.expect(Type::req);
  assert_true(again.psn() == una && again.has(flag::kAgain));
  s.say_ack({una + 1, una + 2, una + 3, una + 4, una + 5});  // all of them sent before the repetition
  s.silence();
}

void timeout_doubles_and_asks_with_the_oldest(void**) {
  Scene s;
  s.establish();  // a first round trip of nothing: RTO_MIN
  s.send(7, 3);
  s.quiet();
  const std::uint32_t una = s.acked[0];
  s.say_ack({una + 1});
  Time wait = 4 * kMillisecond;
  for (int i = 0; i < 12; ++i) {
    s.pass(wait - 1);
    s.silence();
    s.pass(1);
    const Heard h = s.expect(Type::req);
    assert_true(h.psn() == una && h.has(flag::kAckNow | flag::kAgain));
    s.silence();  // one segment: the window after a timeout
    wait = std::min(2 * wait, 4 * kSecond);
  }
  // Progress: the estimator's value again.
  s.acked[0] += 2;
  s.say_ack();
  assert_true(s.expect(Type::req).psn() == una + 2);
  s.quiet();  // a window of a whole segment: the others are small
  s.pass(4 * kMillisecond);
  assert_true(s.expect(Type::req).psn() == una + 2);
}

// Holds: RD-19
void the_oldest_is_repeated_even_if_sacked(void**) {
  Scene s;
  s.establish();
  s.send(7, 1);
  s.quiet();
  // The scripted peer contradicts itself as a lost cumulative acknowledgement looks: bit 0 of an older acknowledgement.
  s.acked[0] -= 1;
  s.say_ack({s.acked[0] + 1});
  s.acked[0] += 1;
  s.pass(4 * kMillisecond);
  assert_true(s.expect(Type::req).psn() == s.acked[0]);
}

// Holds: RD-7
void silence_for_long_is_death(void**) {
  Scene s;
  s.establish();
  s.send(7);
  const Time sent = s.now;
  while (s.endings.empty()) s.pass(10 * kMillisecond);
  assert_true(s.endings[0].why == Ending::unreachable);
  assert_true(s.now - sent >= 15 * kSecond && s.now - sent < 25 * kSecond);
  assert_true(s.heard.back().type() == Type::reset);
}

// Holds: RD-7
// Both have to be over: the tries and the time.
void death_takes_tries_and_time(void**) {
  Config patient;
  patient.retry_max = 40;
  Scene s(patient);
  s.establish();
  s.send(7);
  s.pass(2 * patient.dead_time);
  assert_true(s.endings.empty());
  s.pass(41 * patient.rto_max);
  assert_true(!s.endings.empty() && s.endings[0].why == Ending::unreachable);

  Config hasty;
  hasty.retry_max = 1;
  Scene t(hasty);
  t.establish();
  t.send(7);
  t.pass(hasty.dead_time - kMillisecond);
  assert_true(t.endings.empty());
  t.pass(2 * hasty.rto_max);
  assert_true(!t.endings.empty() && t.endings[0].why == Ending::unreachable);
}

// Holds: RD-7
void answers_without_progress_keep_no_peer_alive(void**) {
  Scene s;
  s.establish();
  s.send(7);
  for (int i = 0; i < 3000 && s.endings.empty(); ++i) {
    s.pass(10 * kMillisecond);
    s.say_ack();
  }
  assert_true(!s.endings.empty() && s.endings[0].why == Ending::unreachable);
}

// Where much is under way the first timeout only asks: the oldest, and the newest, whose SACK shows what is lost.
void first_timeout_of_many_asks(void**) {
  Scene s;
  s.establish();
  s.send(7, 8);
  s.quiet();
  const std::uint32_t una = s.acked[0];
  const auto window = s.association().congestion().window();
  s.pass(4 * kMillisecond);
  for (const std::uint32_t psn : {una, una + 7}) {
    const Heard h = s.expect(Type::req);
    assert_true(h.psn() == psn && h.has(flag::kAckNow | flag::kAgain));
  }
  s.silence();
  assert_int_equal(s.association().congestion().window(), window);
  // The peer had only been asleep.
  Scene t;
  t.establish();
  t.send(7, 8);
  t.quiet();
  t.pass(4 * kMillisecond);
  t.quiet();
  t.acked[0] += 8;
  t.say_ack();
  t.silence();
  assert_true(t.table.counters().retransmitted == 2 && t.table.counters().losses == 0);
  // All but what was asked with is lost.
  ++s.acked[0];
  s.say_ack({una + 7});
  for (std::uint32_t psn = una + 1; psn <= una + 4; ++psn) assert_true(s.expect(Type::req).psn() == psn);
  s.silence();
  s.acked[0] += 4;
  s.say_ack({una + 7});
  s.quiet();
  assert_int_equal(s.table.counters().losses, 1);
}

// Nobody answers at all: then everything is taken for lost.
void second_timeout_of_many_loses_all(void**) {
  Scene s;
  s.establish();
  s.send(7, 8);
  s.quiet();
  const std::uint32_t una = s.acked[0];
  s.pass(4 * kMillisecond);
  s.quiet();
  s.pass(8 * kMillisecond);
  assert_true(s.expect(Type::req).psn() == una);
  s.silence();
  ++s.acked[0];
  s.say_ack();
  assert_true(s.expect(Type::req).psn() == una + 1);
}

// A response is owed and nothing is unacknowledged: ask, and give up by the same limit.
void waiting_for_a_response_asks(void**) {
  Scene s;
  s.establish();
  s.waits = true;
  s.say_ack();
  s.pass(kSecond - 1);
  s.silence();
  s.pass(1);
  assert_true(s.expect(Type::ack).has(flag::kAckNow));
  for (int i = 0; i < 60; ++i) {
    s.say_ack();
    s.pass(kSecond);
    assert_true(s.expect(Type::ack).has(flag::kAckNow));
  }
  assert_true(s.endings.empty());
  s.pass(30 * kSecond);
  assert_true(!s.endings.empty() && s.endings[0].why == Ending::unreachable);
}

// However slow the path was when it was measured.
void an_answer_is_asked_for_within_the_longest_timeout(void**) {
  Scene s;
  s.establish();
  s.send(7);
  s.expect(Type::req);
  s.now += 3 * kSecond;  // nobody looked at the clock
  ++s.acked[0];
  s.say_ack();
  s.quiet();
  assert_in_range(s.association().round_trip().timeout(Config{}), kSecond, Config{}.rto_max);
  s.waits = true;
  s.say_ack();
  s.pass(Config{}.rto_max - 1);
  s.silence();
  s.pass(1);
  assert_true(s.expect(Type::ack).has(flag::kAckNow));
}

void round_trips_are_less_the_peer_s_delay(void**) {
  Scene s;
  s.establish();
  s.send(7);
  s.pass(3 * kMillisecond);
  ++s.acked[0];
  std::array<SackWords, 2> none;
  s.say_as(Type::ack, 0, 0, s.standing(), std::uint16_t{1000}, none);
  // Eight parts of what was there (nothing, rounded up), one part of 2 ms.
  assert_true(s.association().round_trip().smoothed() / 1000 == 250);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_last_segment_asks_for_an_acknowledgement),
      cmocka_unit_test(quarters_of_the_window_ask_too),
      cmocka_unit_test(old_datagrams_change_nothing),
      cmocka_unit_test(a_message_is_done_with_its_last_segment),
      cmocka_unit_test(sack_finds_the_loss_once),
      cmocka_unit_test(timeout_doubles_and_asks_with_the_oldest),
      cmocka_unit_test(the_oldest_is_repeated_even_if_sacked),
      cmocka_unit_test(silence_for_long_is_death),
      cmocka_unit_test(death_takes_tries_and_time),
      cmocka_unit_test(answers_without_progress_keep_no_peer_alive),
      cmocka_unit_test(first_timeout_of_many_asks),
      cmocka_unit_test(second_timeout_of_many_loses_all),
      cmocka_unit_test(waiting_for_a_response_asks),
      cmocka_unit_test(an_answer_is_asked_for_within_the_longest_timeout),
      cmocka_unit_test(round_trips_are_less_the_peer_s_delay),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
