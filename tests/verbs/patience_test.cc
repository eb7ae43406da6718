// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/engine/patience.h"

#include <algorithm>

#include "../vectors/vectors.h"

namespace {

using ewarp::verbs::Patience;
using std::chrono::microseconds;

constexpr auto kBegin = Patience::Clock::time_point(std::chrono::hours(1));

std::chrono::nanoseconds taken{};
std::chrono::nanoseconds yield() {
  return taken;
}

// How long it spins, in a pause that does not end.
long spins_us(Patience& p, Patience::Clock::time_point from) {
  long us = 0;
  while (us < 5000 && p.lasts(from + microseconds(us))) ++us;
  return us;
}

void none_where_no_cpu_is_to_spare(void**) {
  Patience p(microseconds(0), yield);
  for (const int pause : {1, 50, 150, 5000}) {
    p.begin(kBegin);
    assert_int_equal(spins_us(p, kBegin), 0);
    p.end(kBegin + microseconds(pause));
  }
}

void as_the_last_pause_asks_for(void**) {
  const struct {
    int most, pause;
    long then;
  } kCases[] = {
      {2000, 150, 2000}, {2000, 2000, 2000}, {2000, 2001, 100}, {2000, 1'000'000, 100},
      {2000, 10, 100},   {40, 30, 40},       {40, 90, 40},
  };
  for (const auto& c : kCases) {
    Patience p(microseconds(c.most), yield);
    p.begin(kBegin);
    assert_int_equal(spins_us(p, kBegin), std::min(c.most, 100));
    p.end(kBegin + microseconds(c.pause));
    assert_int_equal(spins_us(p, kBegin + microseconds(c.pause)), c.then);
  }
}

// Pauses of bursts do not say what comes behind them.
void short_pauses_change_nothing(void**) {
  Patience p(microseconds(2000), yield);
  p.begin(kBegin);
  p.end(kBegin + microseconds(500));
  p.end(kBegin + microseconds(510));
  assert_true(p.lasts(kBegin + microseconds(510 + 1900)));
}

// A slice of somebody else's is bearable once, but not the time of many; then there is no spinning for 20 ms.
void not_where_others_want_the_cpu(void**) {
  Patience p(microseconds(2000), yield);
  auto now = kBegin;
  const auto pause = [&] {
    p.begin(now);
    p.end(now += microseconds(500));
  };
  pause();
  taken = microseconds(50);
  assert_int_equal(spins_us(p, now), 100 + 4 * 20);  // the fifth is too much
  taken = {};
  pause();
  assert_int_equal(spins_us(p, now), 0);
  now += std::chrono::milliseconds(20);
  pause();
  assert_int_equal(spins_us(p, now), 2000);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(none_where_no_cpu_is_to_spare),
      cmocka_unit_test(as_the_last_pause_asks_for),
      cmocka_unit_test(short_pauses_change_nothing),
      cmocka_unit_test(not_where_others_want_the_cpu),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
