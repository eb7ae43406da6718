// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether who posts much waits for it: learnt from what followed the last post, of times and polls that are made up.
#include "provider/engine/poster_habit.h"

#include "tests/wire/scene.h"

using namespace ewarp::verbs;
using std::chrono::microseconds;

namespace {

struct Application {
  PosterHabit habit;
  PosterHabit::Time now{std::chrono::hours(1)};

  // True: it sends by itself.
  bool post() {
    const bool waits = habit.waits(now);
    now += microseconds(10);
    habit.posted(now);
    return waits;
  }
  void compute(unsigned us) { now += microseconds(us); }
  void poll(unsigned times) {
    for (unsigned i = 0; i < times; ++i) {
      now += microseconds(1);
      if (habit.poll()) habit.polled(now);
    }
  }
};

void who_polls_at_once_waits(void**) {
  Application a;
  assert_false(a.post());  // nothing is known
  a.poll(50);
  for (int i = 0; i < 5; ++i) {
    assert_true(a.post());
    a.poll(4);
  }
}

void who_computes_first_does_not(void**) {
  Application a;
  for (int i = 0; i < 5; ++i) {
    assert_false(a.post());
    a.compute(100);
    a.poll(50);
  }
}

void a_look_or_two_is_no_waiting(void**) {
  Application a;
  for (int i = 0; i < 5; ++i) {
    assert_false(a.post());
    a.poll(3);
    a.compute(100);
    a.poll(50);
  }
}

void who_never_polls_does_not_wait(void**) {
  Application a;
  a.post();
  a.poll(50);
  assert_true(a.post());
  a.compute(100);
  assert_false(a.post());
}

void posts_in_a_row_change_nothing(void**) {
  Application a;
  for (const bool waits : {true, false}) {
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 8; ++i) a.post();
      waits ? a.poll(50) : a.compute(100);
      if (!waits) a.poll(50);
    }
    for (int i = 0; i < 8; ++i) assert_true(a.post() == waits);
    a.poll(50);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(who_polls_at_once_waits),       cmocka_unit_test(who_computes_first_does_not),
      cmocka_unit_test(a_look_or_two_is_no_waiting),   cmocka_unit_test(who_never_polls_does_not_wait),
      cmocka_unit_test(posts_in_a_row_change_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
