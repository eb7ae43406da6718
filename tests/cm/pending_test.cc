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
  assert_true(p.next_victim_at() == at(0) + kPatience);
  // The first whose time is over is alone in that.
  assert_int_equal(victim(p, at(0) + kPatience), 1);
  // A millisecond later it is the one with more.
  assert_int_equal(victim(p, at(1) + kPatience), 2);
  p.evict(2);
  assert_int_equal(p.size(), 7);
  p.complete(3);
  p.add(9, v4(1), at(5));
  assert_int_equal(victim(p, at(5) + kPatience), 4);
}

// A source that has lost many has no such time, until nothing of it waits.
void patience_ends(void**) {
  PendingConnections p(4);
  Number n = 0;
  for (; n < 4; ++n) p.add(n + 1, v4(2), at(0));
  for (unsigned i = 0; i < PendingConnections::kForgiven; ++i) {
    assert_int_equal(victim(p, at(100)), kNobody);
    const Time later = at(100) + 2 * (i + 1) * kPatience;
    p.evict(victim(p, later));
    p.add(++n, v4(2), later);
    if (i + 1 < PendingConnections::kForgiven) assert_int_equal(victim(p, at(0)), kNobody);
  }
  assert_int_not_equal(victim(p, at(0)), kNobody);
  assert_true(p.has_room(at(0)));
  for (Number i = 1; i <= n; ++i) p.remove(i);
  assert_int_equal(p.size(), 0);
  for (int i = 0; i < 4; ++i) p.add(++n, v4(2), at(0));
  assert_int_equal(victim(p, at(0)), kNobody);
}

// Complete ones are lost by a source that has more than half of the places, the latest first; nobody else's.
void complete_ones_too(void**) {
  PendingConnections p(6);
  for (Number n = 1; n <= 3; ++n) p.add(n, v4(1), at(0)), p.complete(n);
  for (Number n = 4; n <= 6; ++n) p.add(n, v4(2), at(0)), p.complete(n);
  assert_int_equal(victim(p, at(0) + 9 * kPatience), kNobody);
  assert_false(p.next_victim_at().has_value());
  p.remove(1);
  p.add(7, v4(2), at(50));
  p.complete(7);
  assert_int_equal(victim(p, at(0)), kNobody);
  assert_int_equal(victim(p, at(0) + kPatience), 6);
  assert_int_equal(victim(p, at(50) + kPatience), 7);
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
      cmocka_unit_test(complete_ones_too),
      cmocka_unit_test(service_in_turns),
      cmocka_unit_test(a_network_is_one_source),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
