// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether who posts much waits for it: learnt from what followed the last post, of times and polls that are made up.
#include "provider/engine/poster_habit.h"

#include "tests/wire/scene.h"

using namespace ewarp::verbs;
using std::chrono::microseconds;

namespace {

struct Application {
  PosterHabit habit;
  // What others take of its CPU is none of its own time.
  PosterHabit::Duration now{std::chrono::hours(1)}, used{};

  auto clock() {
    return [this] { return habit.by_cpu_time() ? used : now; };
  }
  // True: it sends by itself.
  bool post() {
    const bool waits = habit.waits(clock()());
    compute(10);
    habit.posted(clock());
    return waits;
  }
  void compute(unsigned us) {
    now += microseconds(us);
    used += microseconds(us);
  }
  void others(unsigned us) { now += microseconds(us); }
  void poll(unsigned times, unsigned us = 1) {
    for (unsigned i = 0; i < times; ++i) {
      const bool looks = habit.looks();
      if (looks) habit.begins(clock()());
      compute(us);
      if (looks) habit.ended(clock()());
    }
  }
  void pause() {
    compute(100);
    poll(50);
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
    a.pause();
  }
}

void who_computes_from_now_on_is_seen_to(void**) {
  Application a;
  a.post();
  a.poll(50);
  for (int i = 0; i < 2; ++i) {
    assert_true(a.post());
    a.pause();
  }
  for (int i = 0; i < 5; ++i) {
    assert_false(a.post());
    a.pause();
  }
}

void one_pause_is_no_habit(void**) {
  Application a;
  a.post();
  a.poll(50);
  for (int i = 0; i < 5; ++i) {
    assert_true(a.post());
    a.pause();
    assert_true(a.post());
    a.poll(50);
  }
}

// A poll receives what has come, and that may be much.
void how_long_polls_take_does_not_count(void**) {
  Application a;
  a.post();
  a.poll(4, 500);
  for (int i = 0; i < 5; ++i) {
    assert_true(a.post());
    a.poll(4, 500);
  }
}

// The background thread, woken for the post, for instance. Known only where it is asked for: behind a pause.
void what_others_take_does_not_count(void**) {
  Application a;
  for (int i = 0; i < 5; ++i) {
    assert_true(a.post() == (i > 0));
    a.others(1000);
    a.poll(50);
  }
}

void a_look_or_two_is_no_waiting(void**) {
  Application a;
  for (int i = 0; i < 5; ++i) {
    assert_false(a.post());
    a.poll(3);
    a.pause();
  }
}

void who_never_polls_does_not_wait(void**) {
  Application a;
  a.post();
  a.poll(50);
  assert_true(a.post());
  a.compute(100);
  assert_true(a.post());
  a.compute(100);
  assert_false(a.post());
}

void posts_in_a_row_change_nothing(void**) {
  Application a;
  for (const bool waits : {true, false}) {
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 8; ++i) a.post();
      waits ? a.poll(50) : a.pause();
    }
    for (int i = 0; i < 8; ++i) assert_true(a.post() == waits);
    a.poll(50);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(who_polls_at_once_waits),
      cmocka_unit_test(who_computes_first_does_not),
      cmocka_unit_test(who_computes_from_now_on_is_seen_to),
      cmocka_unit_test(one_pause_is_no_habit),
      cmocka_unit_test(how_long_polls_take_does_not_count),
      cmocka_unit_test(what_others_take_does_not_count),
      cmocka_unit_test(a_look_or_two_is_no_waiting),
      cmocka_unit_test(who_never_polls_does_not_wait),
      cmocka_unit_test(posts_in_a_row_change_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
