// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who gives up a place when all are taken, and who is served next; in made-up time.
#include "provider/startup/pending.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

namespace ewarp::test {
namespace {

using verbs::PendingConnections;
using Number = PendingConnections::Number;
using Time = PendingConnections::Clock::time_point;
constexpr auto kPatience = PendingConnections::kPatience;
constexpr auto kCompletePatience = PendingConnections::kCompletePatience;

PendingConnections::Address v4(std::uint8_t last) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last};
}
PendingConnections::Address v6(std::uint8_t network, std::uint8_t host) {
  return {0x20, 1, 0xd, 0xb8, 0, 0, 0, network, 0, 0, 0, 0, 0, 0, 0, host};
}
Time at(int milliseconds) {
  return Time(std::chrono::hours(1) + std::chrono::milliseconds(milliseconds));
}
constexpr Number kNobody = 0;
Number victim(const PendingConnections& p, Time now) {
  return p.victim(now).value_or(kNobody);
}
Number next(const PendingConnections& p) {
  return p.next_complete().value_or(kNobody);
}

void the_largest_source_pays_with_its_oldest(void**) {
  PendingConnections p(8);
  p.add(1, v4(1), at(0));
  for (Number n = 2; n <= 6; ++n) p.add(n, v4(2), at(1));
  p.add(7, v4(3), at(2));
  assert_true(p.has_room(at(2)));
  p.add(8, v4(3), at(3));
  // Everybody has the time that a Request takes.
  assert_false(p.has_room(at(3)));
  assert_true(p.next_victim_at(at(3)) == at(0) + kPatience);
  // The first whose time is over is alone in that.
  assert_int_equal(victim(p, at(0) + kPatience), 1);
  // A millisecond later it is the one with more.
  assert_int_equal(victim(p, at(1) + kPatience), 2);
  p.evict(2, at(1) + kPatience);
  assert_int_equal(p.size(), 7);
  p.complete(3);
  p.add(9, v4(1), at(5));
  assert_int_equal(victim(p, at(5) + kPatience), 4);
}

// All places are one source's; it loses kForgiven, each in its time, and a new connection takes the place.
struct Flood {
  static constexpr Number kPlaces = 512;
  PendingConnections p{kPlaces};
  Number n = 0;
  Time last;
  explicit Flood(bool complete) {
    fill(v4(2), kPlaces, at(0), complete);
    assert_int_equal(victim(p, at(999)), kNobody);
    last = at(0) + (complete ? kCompletePatience : kPatience);
    for (unsigned i = 0; i < PendingConnections::kForgiven; ++i) {
      p.evict(victim(p, last), last);
      fill(v4(2), 1, last, complete);
    }
  }
  void fill(const PendingConnections::Address& from, Number count, Time now, bool complete) {
    for (Number i = 0; i < count; ++i) {
      p.add(++n, from, now);
      if (complete) p.complete(n);
    }
  }
};

// A source that has lost many has no such time, as long as it holds more than its share, and that is remembered.
void patience_ends(void**) {
  for (const bool complete : {false, true}) {
    Flood f(complete);
    assert_int_not_equal(victim(f.p, f.last), kNobody);
    // Those whose time is over are gone.
    for (Number i = 1; i <= Flood::kPlaces; ++i) f.p.remove(i);
    f.fill(v4(2), Flood::kPlaces - f.p.size(), f.last, complete);
    assert_int_not_equal(victim(f.p, f.last), kNobody);
    // Others who come make its share smaller, and those who hold less than theirs keep their time.
    f.p.remove(victim(f.p, f.last));
    f.fill(v4(3), 1, f.last, false);
    const Number next = victim(f.p, f.last);
    assert_true(next != kNobody && next != f.n);
    // Nothing of it waits any more.
    for (Number i = 1; i <= f.n; ++i) f.p.remove(i);
    assert_int_equal(f.p.size(), 0);
    f.fill(v4(2), Flood::kPlaces, f.last, complete);
    assert_int_equal(victim(f.p, f.last), kNobody);
  }
}

void losses_are_forgotten(void**) {
  Flood f(true);
  const Time later = f.last + PendingConnections::kRemembered;
  for (Number i = 1; i <= f.n; ++i)
    if (i != f.n) f.p.remove(i);
  f.fill(v4(2), Flood::kPlaces - 1, later, true);
  assert_int_equal(victim(f.p, later), f.n - Flood::kPlaces + 1);  // the one from before
  f.p.evict(victim(f.p, later), later);
  f.fill(v4(2), 1, later, true);
  assert_int_equal(victim(f.p, later), kNobody);
  assert_true(f.p.next_victim_at(later) == later + kCompletePatience);
}

// Complete ones are lost by the source that has most, the latest first, if it has more than its share of the places:
// there are as many shares as sources, and one more.
void complete_ones_too(void**) {
  PendingConnections p(6);
  for (Number n = 1; n <= 3; ++n) p.add(n, v4(1), at(0)), p.complete(n);
  for (Number n = 4; n <= 6; ++n) p.add(n, v4(2), at(0)), p.complete(n);
  assert_int_equal(victim(p, at(0) + kPatience), kNobody);
  assert_true(p.next_victim_at(at(0) + kPatience) == at(0) + kCompletePatience);
  assert_int_equal(victim(p, at(0) + kCompletePatience), 3);
  p.remove(1);
  p.add(7, v4(2), at(50));
  p.complete(7);
  assert_int_equal(victim(p, at(0)), kNobody);
  assert_int_equal(victim(p, at(0) + kCompletePatience), 6);
  assert_int_equal(victim(p, at(50) + kCompletePatience), 7);
  // Two each: the share is one.
  p.evict(7, at(0));
  p.evict(6, at(0));
  p.add(8, v4(3), at(60));
  p.add(9, v4(3), at(60));
  p.complete(8);
  p.complete(9);
  assert_int_not_equal(victim(p, at(60) + kCompletePatience), kNobody);
}

// Who waits with one keeps it, however many there are.
void one_each(void**) {
  PendingConnections p(4);
  for (Number n = 1; n <= 4; ++n) p.add(n, v4(static_cast<std::uint8_t>(n)), at(0)), p.complete(n);
  assert_int_equal(victim(p, at(0) + 9 * kCompletePatience), kNobody);
  assert_false(p.next_victim_at(at(0) + 9 * kCompletePatience).has_value());
}

// A program that is slow to accept: the many behind one address lose nothing for a while.
void many_behind_one_address(void**) {
  PendingConnections p(256);
  for (Number n = 1; n <= 256; ++n) p.add(n, v4(1), at(0)), p.complete(n);
  assert_false(p.has_room(at(0) + kCompletePatience - std::chrono::milliseconds(1)));
  assert_true(p.has_room(at(0) + kCompletePatience));
}

// Who was served least is next; of one source, in the order of accept().
void service_in_turns(void**) {
  PendingConnections p(16);
  for (Number n = 1; n <= 5; ++n) p.add(n, v4(1), at(0));
  for (const Number n : {3, 1, 2, 5}) p.complete(n);
  assert_int_equal(next(p), 1);
  p.serve(1);
  assert_int_equal(next(p), 2);
  p.add(6, v4(2), at(0));
  p.add(7, v4(2), at(0));
  assert_int_equal(next(p), 2);
  p.complete(6);
  p.complete(7);
  for (const Number n : {6, 2, 7, 3, 5}) {
    assert_int_equal(next(p), n);
    p.serve(n);
  }
  assert_int_equal(next(p), kNobody);  // 4 is silent
  p.complete(4);
  assert_int_equal(next(p), 4);
}

// The host part of an IPv6 address is anybody's to choose.
void a_network_is_one_source(void**) {
  PendingConnections p(5);
  p.add(1, v4(1), at(0));
  p.add(2, v4(2), at(0));
  p.add(3, v4(2), at(0));
  for (Number n = 4; n <= 6; ++n) p.add(n, v6(1, static_cast<std::uint8_t>(n)), at(0));
  p.add(7, v6(2, 4), at(0));
  assert_int_equal(victim(p, at(0) + kPatience), 4);
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_largest_source_pays_with_its_oldest),
      cmocka_unit_test(patience_ends),
      cmocka_unit_test(losses_are_forgotten),
      cmocka_unit_test(complete_ones_too),
      cmocka_unit_test(one_each),
      cmocka_unit_test(many_behind_one_address),
      cmocka_unit_test(service_in_turns),
      cmocka_unit_test(a_network_is_one_source),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
