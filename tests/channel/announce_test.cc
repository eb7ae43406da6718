// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The counters at both ends, their bounds, and when announcing stops and resumes.
#include "mpi_shim/channel/core/announce.h"

#include <cstdlib>
#include <limits>
#include <new>

#include "tests/channel/scene.h"

namespace {

constexpr int kAll = std::numeric_limits<int>::max();
thread_local int allocations_left = kAll;  // of this thread

}  // namespace

void* operator new(std::size_t n) {
  if (allocations_left != kAll && --allocations_left < 0) throw std::bad_alloc();
  void* p = std::malloc(n > 0 ? n : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

using namespace ewarp::channel;
using namespace ewarp::channel::test;

namespace {

using Verdict = SentNumbers::Verdict;

Announcement for_number(std::uint64_t n) {
  return {.number = n, .capacity = 100, .remote = {}, .id = 0};
}

void numbers_rise_per_tag(void**) {
  Counters c;
  SentNumbers sent(10, c);
  for (std::uint64_t n = 0; n < 5; ++n)
    for (const Tag tag : {Tag{1}, Tag{2}}) assert_int_equal(sent.take(tag).number, n);
}

void an_announcement_is_for_its_number_alone(void**) {
  Counters c;
  SentNumbers sent(10, c);
  assert_true(sent.store(1, for_number(0)) == Verdict::stored);
  assert_true(sent.store(1, for_number(2)) == Verdict::stored);
  assert_non_null(sent.peek(1));
  assert_null(sent.peek(2));
  assert_true(sent.take(1).announcement.has_value());
  assert_null(sent.peek(1));
  assert_false(sent.take(1).announcement.has_value());
  assert_true(sent.store(1, for_number(1)) == Verdict::old);
  assert_true(sent.take(1).announcement.has_value());
  assert_int_equal(sent.stored(), 0);
}

void announcements_out_of_bounds_are_violations(void**) {
  Counters c;
  SentNumbers sent(2000, c);
  assert_true(sent.store(1, for_number(kWindow)) == Verdict::violation);
  assert_true(sent.store(1, for_number(kWindow - 1)) == Verdict::stored);
  assert_true(sent.store(1, for_number(kWindow - 1)) == Verdict::violation);
  assert_true(sent.store(1, for_number(3)) == Verdict::violation);
  for (Tag tag = 2; tag <= kMostAnnounced; ++tag) assert_true(sent.store(tag, for_number(0)) == Verdict::stored);
  assert_true(sent.store(5000, for_number(0)) == Verdict::violation);
  sent.retract(2);
  assert_int_equal(sent.stored(), kMostAnnounced - 1);
  assert_true(sent.store(5000, for_number(0)) == Verdict::stored);
}

void a_forgotten_tag_starts_above_everything_announced(void**) {
  Counters c;
  SentNumbers sent(2, c);
  for (int i = 0; i < 5; ++i) sent.take(1);
  assert_true(sent.store(1, for_number(5 + kWindow - 1)) == Verdict::stored);
  sent.take(2);
  sent.take(3);  // forgets 1
  assert_int_equal(c[Count::counter_evictions], 1);
  assert_int_equal(c[Count::got_evicted], 1);
  assert_int_equal(sent.floor(), 5 + kWindow);
  for (std::uint64_t n = 5; n < 5 + kWindow; ++n) assert_true(sent.store(1, for_number(n)) == Verdict::old);
  assert_true(sent.take(1).number >= 5 + kWindow);
}

// The receiver counts more tags than the sender. It announces for one that was never used, from the floor that it was
// told, while the sender raises that: each announcement is used for the message that it was meant for, or not at all.
void a_floor_that_rises_makes_what_was_announced_from_the_last_one_old(void**) {
  for (std::uint64_t uses = 1; uses <= 2 * kWindow; ++uses) {
    Counters c;
    SentNumbers sent(2, c);
    ArrivedNumbers arrived(10, c);
    const auto send = [&](Tag tag) { assert_true(arrived.arrived(tag, sent.take(tag).number)); };
    send(1);
    for (std::uint64_t i = 0; i < uses; ++i) send(2);
    send(3);  // forgets 1
    arrived.on_floor(sent.floor());
    const std::uint64_t first = *arrived.next(4);
    for (std::uint64_t i = 0; i < kWindow; ++i)
      assert_true(sent.store(4, for_number(first + i)) != Verdict::violation);  // the first one forgets 2
    for (std::uint64_t i = 0; i < kWindow; ++i) {
      const SentNumbers::Turn turn = sent.take(4);
      if (turn.announcement) assert_int_equal(turn.announcement->number, first + i);
      assert_true(arrived.arrived(4, turn.number));
    }
  }
}

void a_receiver_that_forgot_learns_the_number_from_a_message(void**) {
  Counters c;
  ArrivedNumbers arrived(2, c);
  assert_int_equal(*arrived.next(1), 0);
  assert_true(arrived.arrived(1, 0));
  assert_int_equal(*arrived.next(1), 1);
  assert_true(arrived.arrived(2, 0));
  assert_true(arrived.arrived(3, 0));  // forgets 1
  assert_false(arrived.next(1).has_value());
  assert_false(arrived.next(4).has_value());  // may have been one of those that were forgotten
  assert_true(arrived.arrived(1, 1));
  assert_int_equal(*arrived.next(1), 2);
}

void a_message_that_finds_no_memory_is_counted_later(void**) {
  Counters c;
  ArrivedNumbers arrived(10, c);
  for (int good = 0;; ++good) {
    allocations_left = good;
    const bool came = arrived.arrived(1, static_cast<std::uint64_t>(good));
    const auto next = arrived.next(1);
    allocations_left = kAll;
    assert_true(came);
    if (next.has_value()) {
      assert_int_equal(*next, good + 1);
      assert_true(good > 0);
      break;
    }
  }
  assert_false(arrived.next(2).has_value());  // may have been one whose message was not counted
  assert_int_equal(c[Count::counter_evictions], 0);
}

void a_number_of_the_past_is_a_violation_and_a_leap_is_not(void**) {
  Counters c;
  ArrivedNumbers arrived(2, c);
  assert_true(arrived.arrived(1, 3));
  assert_false(arrived.arrived(1, 3));
  assert_true(arrived.arrived(1, 100));
  assert_int_equal(*arrived.next(1), 101);
}

void unused_tags_start_at_the_floor_that_was_told(void**) {
  Counters c;
  ArrivedNumbers arrived(10, c);
  assert_int_equal(*arrived.next(1), 0);
  arrived.on_floor(70);
  assert_int_equal(*arrived.next(1), 0);  // was counted from before
  assert_int_equal(*arrived.next(2), 70);
}

void announcing_stops_below_the_threshold_and_resumes(void**) {
  Usage usage;
  for (int i = 0; i < 100; ++i) usage.record(i % 10 != 9, 80);  // 90 % of them
  assert_true(usage.announcing());
  int until = 0;
  while (usage.announcing()) {
    usage.record(false, 80);
    assert_true(++until <= 4);
  }
  for (int i = 0; i < 100; ++i) usage.record(i % 4 != 0, 80);  // 75 %
  assert_false(usage.announcing());
  until = 0;
  while (!usage.announcing()) {
    usage.record(true, 80);
    assert_true(++until <= 8);
  }
}

// Where guesses are right and announcements wasted all the same, as in a ping-pong, announcing becomes rare.
void each_resumption_in_vain_is_followed_by_a_longer_pause(void**) {
  Usage usage;
  int announced = 0;
  for (int i = 0; i < 10000; ++i) {
    announced += usage.announcing() ? 1 : 0;
    usage.record(!usage.announcing(), 80);
  }
  assert_true(announced < 120);
  assert_true(announced > 60);
  // It pays again: then a failure is followed by no pause.
  while (!usage.announcing()) usage.record(true, 80);
  for (int i = 0; i < 20; ++i) usage.record(true, 80);
  while (usage.announcing()) usage.record(false, 80);
  for (int i = 0; i < 8; ++i) usage.record(true, 80);
  assert_true(usage.announcing());
}

void a_few_results_decide_nothing(void**) {
  Usage usage;
  for (int i = 0; i < 7; ++i) {
    usage.record(false, 80);
    assert_true(usage.announcing());
  }
  usage.record(false, 80);
  assert_false(usage.announcing());
}

// Of a peer that is gone.
void cleared_counts_hold_nothing(void**) {
  Counters counters;
  SentNumbers sent(8, counters);
  for (Tag tag = 1; tag < 6; ++tag) {
    sent.take(tag);
    assert_true(sent.store(tag, for_number(1)) == Verdict::stored);
  }
  sent.clear();
  assert_int_equal(sent.stored(), 0);
  for (Tag tag = 1; tag < 6; ++tag) assert_null(sent.peek(tag));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(numbers_rise_per_tag),
      cmocka_unit_test(an_announcement_is_for_its_number_alone),
      cmocka_unit_test(announcements_out_of_bounds_are_violations),
      cmocka_unit_test(a_forgotten_tag_starts_above_everything_announced),
      cmocka_unit_test(a_floor_that_rises_makes_what_was_announced_from_the_last_one_old),
      cmocka_unit_test(a_receiver_that_forgot_learns_the_number_from_a_message),
      cmocka_unit_test(a_message_that_finds_no_memory_is_counted_later),
      cmocka_unit_test(a_number_of_the_past_is_a_violation_and_a_leap_is_not),
      cmocka_unit_test(unused_tags_start_at_the_floor_that_was_told),
      cmocka_unit_test(announcing_stops_below_the_threshold_and_resumes),
      cmocka_unit_test(each_resumption_in_vain_is_followed_by_a_longer_pause),
      cmocka_unit_test(a_few_results_decide_nothing),
      cmocka_unit_test(cleared_counts_hold_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
