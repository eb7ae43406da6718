// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An alarm goes off at its time, and at no other when it is moved or cleared.
#include "llp/alarm.h"

#include <poll.h>

#include "../vectors/vectors.h"

namespace {

using ewarp::llp::Alarm;
using std::chrono::milliseconds;

bool goes_off(const Alarm& alarm, int within_ms) {
  pollfd p{alarm.fd(), POLLIN, 0};
  return poll(&p, 1, within_ms) == 1;
}

void goes_off_at_its_time(void**) {
  Alarm alarm;
  assert_int_equal(alarm.open(), 0);
  assert_false(goes_off(alarm, 0));
  const auto when = Alarm::Clock::now() + milliseconds(20);
  assert_true(alarm.set(when));
  assert_true(goes_off(alarm, 10000));
  assert_true(Alarm::Clock::now() >= when);
  assert_true(goes_off(alarm, 0));  // until it is set anew
  assert_true(alarm.set(Alarm::Clock::now() + std::chrono::hours(1)));
  assert_false(goes_off(alarm, 0));
}

void the_past_is_due_at_once(void**) {
  Alarm alarm;
  assert_int_equal(alarm.open(), 0);
  for (const auto when : {Alarm::Clock::time_point{}, Alarm::Clock::time_point{} - std::chrono::hours(1),
                          Alarm::Clock::now() - milliseconds(1)}) {
    assert_true(alarm.set(when));
    assert_true(goes_off(alarm, 1000));
  }
}

void put_off_or_cleared_it_is_silent(void**) {
  Alarm alarm;
  assert_int_equal(alarm.open(), 0);
  assert_true(alarm.set(Alarm::Clock::now() + milliseconds(5)));
  assert_true(alarm.set(Alarm::Clock::now() + std::chrono::hours(1)));
  assert_false(goes_off(alarm, 30));
  assert_true(alarm.set(Alarm::Clock::now() + milliseconds(5)));
  alarm.clear();
  assert_false(goes_off(alarm, 30));
}

void closed_it_says_so(void**) {
  Alarm alarm;
  assert_false(alarm.set(Alarm::Clock::now()));
  assert_int_equal(alarm.open(), 0);
  alarm.close();
  assert_false(alarm.is_open());
  assert_false(alarm.set(Alarm::Clock::now()));
  alarm.clear();
  assert_int_equal(alarm.open(), 0);
  assert_true(alarm.set(Alarm::Clock::now()));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(goes_off_at_its_time),
      cmocka_unit_test(the_past_is_due_at_once),
      cmocka_unit_test(put_off_or_cleared_it_is_silent),
      cmocka_unit_test(closed_it_says_so),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
