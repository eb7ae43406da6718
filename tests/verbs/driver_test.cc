// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who drives, in virtual time: how long messages wait, and how often the background thread is woken for nothing.
#include "provider/engine/driver.h"

#include "../vectors/vectors.h"

namespace {

using ewarp::verbs::Driver;
using State = Driver::State;
using std::chrono::microseconds;

constexpr auto kLongest = microseconds(500);

// An application and the background thread. Where there is one CPU they take turns at it: the thread comes late.
struct World {
  explicit World(unsigned cpus, bool crowded = false)
      : driver(kLongest, crowded), wake_up(cpus == 1 ? microseconds(100) : microseconds(20)) {
    driver.step(now);
  }

  // The application polls for so long, a pass every microsecond, and the thread does what it would do meanwhile; a
  // message every `between` (0: none).
  void poll_for(microseconds time, microseconds between = microseconds(0)) {
    auto next = now + between;
    for (const auto until = now + time; now < until; now += microseconds(1)) {
      driver.passed(0);
      put_offs += driver.may_put_off() && driver.put_off(now);
      const bool arrives = between.count() > 0 && now >= next;
      if (arrives) next = now + between;
      background(arrives);
    }
  }
  // It computes; messages arrive meanwhile. The longest that one waits.
  microseconds compute_for(microseconds time, microseconds between) {
    auto worst = microseconds(0);
    auto next = now + between;
    Driver::Time waiting{};
    for (const auto until = now + time; now < until; now += microseconds(1)) {
      if (now >= next) {
        next += between;
        if (waiting == Driver::Time{}) waiting = now;
      }
      background(waiting != Driver::Time{});
      if (waiting != Driver::Time{} && served) {
        worst = std::max(worst, std::chrono::duration_cast<microseconds>(now - waiting));
        waiting = {};
      }
    }
    return worst;
  }
  // The thread at this microsecond: asleep until a message comes (serving) or the time of its return (aside).
  void background(bool message) {
    served = false;
    if (wakes_at == Driver::Time{}) {
      if (driver.application_drives() ? now < driver.returns_at() : !message) return;
      wakes_at = now + (driver.application_drives() ? microseconds(0) : wake_up);
    }
    if (now < wakes_at) return;
    wakes_at = {};
    ++wakes;
    const bool passes = driver.wants_pass(now);
    if (passes && message) driver.came(waited_for);
    served = driver.step(now) == State::serving;
    if (served && !passes && message) driver.came(waited_for);
    served = served || passes;
  }

  Driver driver;
  Driver::Time now = Driver::Time(std::chrono::hours(1));
  const microseconds wake_up;
  Driver::Time wakes_at{};
  bool served = false, waited_for = true;  // waited_for: what comes while nobody polls
  int wakes = 0, put_offs = 0;
};

constexpr unsigned kCpus[] = {1, 2, 4};

void who_does_not_poll_is_served(void**) {
  for (const unsigned cpus : kCpus) {
    World w(cpus);
    assert_in_range(w.compute_for(microseconds(10000), microseconds(200)).count(), 0, 100);
    assert_false(w.driver.application_drives());
  }
}

void who_polls_drives(void**) {
  for (const unsigned cpus : kCpus) {
    World w(cpus);
    w.poll_for(microseconds(2000), microseconds(10));
    assert_true(w.driver.application_drives());
    // From then on nothing wakes the thread, and that costs the application a call in half of kLongest.
    const int wakes = w.wakes, put_offs = w.put_offs;
    w.poll_for(microseconds(50000), microseconds(10));
    assert_true(w.driver.application_drives());
    assert_int_equal(w.wakes - wakes, 0);
    assert_in_range(w.put_offs - put_offs, 150, 210);
  }
}

// A system call in nearly the whole of a long period: at 99 % of ib_send_lat it would be seen.
void a_long_period_is_put_off_near_its_end(void**) {
  constexpr auto kPeriod = microseconds(2500);
  Driver driver(kPeriod);
  Driver::Time now{};
  driver.step(now);
  int put_offs = 0;
  const auto poll_for = [&](microseconds time) {
    for (const auto until = now + time; now < until; now += microseconds(4)) {
      driver.passed(0);
      put_offs += driver.may_put_off() && driver.put_off(now);
      if (driver.application_drives()) assert_true(now < driver.returns_at());
      if (!driver.application_drives()) driver.step(now);
    }
  };
  poll_for(microseconds(50000));
  assert_true(driver.application_drives());
  put_offs = 0;
  poll_for(40 * kPeriod);
  assert_in_range(put_offs, 40, 46);
}

void who_stops_polling_is_served_again(void**) {
  for (const unsigned cpus : kCpus) {
    World w(cpus);
    for (const int polled : {100, 1000, 20000}) {
      w.poll_for(microseconds(polled), microseconds(10));
      assert_in_range(w.compute_for(microseconds(5000), microseconds(20)).count(), 0, kLongest.count());
      assert_false(w.driver.application_drives());
    }
  }
}

// A poll in every round, and memory looked at in between (ib_write_lat): that is nobody to rely on.
void a_poll_now_and_then_is_not_driving(void**) {
  for (const unsigned cpus : kCpus) {
    World w(cpus);
    auto worst = microseconds(0);
    for (int round = 0; round < 500; ++round) {
      w.driver.passed(0);
      worst = std::max(worst, w.compute_for(microseconds(150), microseconds(25)));
    }
    assert_in_range(worst.count(), 0, 120);
    assert_false(w.driver.application_drives());
  }
}

// Who polls too seldom to be relied on cannot put the thread off.
void who_polls_seldom_does_not_put_off(void**) {
  for (const unsigned cpus : kCpus) {
    World w(cpus);
    w.poll_for(microseconds(5000), microseconds(10));
    assert_true(w.driver.application_drives());
    auto worst = microseconds(0);
    for (int round = 0; round < 200; ++round) {
      w.driver.passed(0);
      w.put_offs += w.driver.may_put_off() && w.driver.put_off(w.now);
      worst = std::max(worst, w.compute_for(microseconds(100), microseconds(20)));
    }
    assert_false(w.driver.application_drives());
    assert_in_range(worst.count(), 0, kLongest.count());
  }
}

// Passes over many sockets take long, too.
void each_socket_counts(void**) {
  World w(2);
  for (int pass = 0; pass < 20; ++pass) {
    w.driver.step(w.now += microseconds(40), true);
    w.now += microseconds(40);
    w.driver.passed(32 * 8, 32);
    if (w.driver.may_put_off()) w.driver.put_off(w.now);
    w.driver.step(w.now);
  }
  assert_true(w.driver.application_drives());
}

// Passes that move much take long: they count for what they move.
void long_passes_count_for_what_they_move(void**) {
  World w(2);
  for (int pass = 0; pass < 20; ++pass) {
    w.driver.step(w.now += microseconds(40), true);
    w.now += microseconds(40);
    w.driver.passed(256 * 1024);
    if (w.driver.may_put_off()) w.driver.put_off(w.now);
    w.driver.step(w.now);
  }
  assert_true(w.driver.application_drives());
}

// An application that has been receiving much makes a call that lasts beyond the time of the return.
void receive_until_a_long_call(World& w) {
  while (!w.driver.application_drives()) {
    w.driver.passed(256 * 1024);
    w.driver.step(w.now += microseconds(60));
  }
  w.driver.passed(1024 * 1024);
  w.now = w.driver.returns_at() + microseconds(1);
}

// Who sends in its posts and finds their completions at once makes few passes; but who makes none receives nothing.
void who_sends_by_posts_drives_with_passes(void**) {
  for (const bool polls : {true, false}) {
    World w(2, true);
    for (int post = 0; post < 20; ++post) {
      w.driver.sent(1024 * 1024);
      if (polls) w.driver.passed(0);
      w.driver.came(true);
      w.driver.step(w.now += microseconds(130));
    }
    assert_true(w.driver.application_drives() == polls);
  }
}

// Nor does it put off the return of the background thread.
void who_polls_no_more_but_posts_is_served(void**) {
  World w(2, true);
  receive_until_a_long_call(w);
  for (int look = 0; look < 3 && w.driver.application_drives(); ++look) {
    w.driver.sent(64 * 1024 * 1024);
    w.driver.step(w.now);
    w.now = std::max(w.now, w.driver.returns_at());
  }
  assert_false(w.driver.application_drives());
}

// That keeps it from putting the return off.
void a_long_call_of_who_polls_is_waited_for(void**) {
  World w(2);
  receive_until_a_long_call(w);
  assert_true(w.driver.step(w.now, true) == State::aside);
  assert_true(w.driver.returns_at() - w.now > Driver::first_period());
  // Who holds it now has made no passes.
  w.now = w.driver.returns_at() + microseconds(1);
  assert_true(w.driver.step(w.now, true) == State::aside);
  assert_true(w.driver.returns_at() - w.now == Driver::first_period());
  w.now = w.driver.returns_at() + microseconds(1);
  assert_true(w.driver.step(w.now) == State::serving);
}

void no_pass_is_wanted_beside_who_polls(void**) {
  World w(2, true);
  receive_until_a_long_call(w);
  assert_false(w.driver.wants_pass(w.now, true));
  assert_false(w.driver.wants_pass(w.now, false));
  w.driver.step(w.now, true);
  w.now = w.driver.returns_at() + microseconds(1);
  assert_true(w.driver.wants_pass(w.now, true));
}

// The time of the return comes between two calls, which an application that polls could not know: it is asked again,
// and put off if there are more.
void who_polls_is_asked_again(void**) {
  for (const bool goes_on : {true, false}) {
    World w(2, true);
    receive_until_a_long_call(w);
    assert_true(w.driver.step(w.now) == State::aside);
    assert_true(w.driver.returns_at() - w.now == Driver::first_period());
    if (goes_on) w.driver.passed(256 * 1024);
    w.now = w.driver.returns_at();
    assert_true(w.driver.wants_pass(w.now) != goes_on);
    assert_true(w.driver.step(w.now) == (goes_on ? State::aside : State::serving));
    if (goes_on) assert_true(w.driver.returns_at() - w.now > Driver::first_period());
  }
}

// The background thread is always in the middle of a pass when the application would make one.
void who_is_kept_out_polls(void**) {
  World w(2, true);
  for (int i = 0; i < 20 && !w.driver.application_drives(); ++i) {
    for (int poll = 0; poll < 10; ++poll) w.driver.kept_out();
    w.driver.came(true);
    w.driver.step(w.now += microseconds(10));
  }
  assert_true(w.driver.application_drives());
}

void what_is_left_to_the_thread_is_its(void**) {
  World w(2);
  w.poll_for(microseconds(2000), microseconds(10));
  assert_true(w.driver.application_drives());
  // The post of much: 8 passes later at the earliest somebody else may do it.
  w.driver.serve_until(w.driver.passes() + 8);
  assert_true(w.driver.reclaim());
  assert_false(w.driver.reclaim());
  assert_false(w.driver.application_drives());
  assert_true(w.driver.step(w.now) == State::serving);
  w.now += microseconds(60);
  for (int i = 0; i < 7; ++i) w.driver.passed(64 * 1024);
  assert_true(w.driver.step(w.now) == State::serving);
  for (int i = 0; i < 60; ++i) w.driver.passed(0);
  w.now += microseconds(60);
  assert_true(w.driver.step(w.now) == State::aside);
}

// A reclaim between two looks is not undone by the second.
void a_reclaim_is_not_lost(void**) {
  World w(2);
  w.poll_for(microseconds(2000), microseconds(10));
  assert_true(w.driver.application_drives());
  for (int i = 0; i < 1000; ++i) w.driver.passed(0);
  assert_true(w.driver.reclaim());
  w.now = w.driver.returns_at();
  assert_true(w.driver.step(w.now) == State::serving);
  assert_false(w.driver.application_drives());
}

// Without a CPU to spare: what nobody waits for wakes the thread a few times, and it looks every 1.5 kLongest at the
// latest.
void sends_leave_who_computes_alone(void**) {
  World w(1, true);
  w.waited_for = false;
  w.compute_for(microseconds(5000), microseconds(50));
  assert_true(w.driver.application_drives());
  const int before = w.wakes;
  assert_in_range(w.compute_for(microseconds(50000), microseconds(50)).count(), 0, 3 * kLongest.count() / 2 + 100);
  assert_in_range(w.wakes - before, 65, 67);
}

void where_cpus_are_spare_sends_are_served_at_once(void**) {
  World w(4);
  w.waited_for = false;
  assert_in_range(w.compute_for(microseconds(10000), microseconds(200)).count(), 0, 100);
  assert_false(w.driver.application_drives());
}

// A Read among the Sends waits once; those behind it do not.
void what_a_peer_waits_for_is_served_at_once_again(void**) {
  World w(2, true);
  w.waited_for = false;
  w.compute_for(microseconds(5000), microseconds(50));
  w.waited_for = true;
  assert_in_range(w.compute_for(microseconds(5000), microseconds(200)).count(), 100, 3 * kLongest.count() / 2 + 100);
  assert_false(w.driver.application_drives());
  assert_in_range(w.compute_for(microseconds(5000), microseconds(200)).count(), 0, 100);
}

// Between two sweeps nothing comes for a while: as long as the application calls, it is as before; then the thread
// sleeps.
void patience_lasts_while_the_application_calls(void**) {
  World w(2, true);
  w.waited_for = false;
  w.compute_for(microseconds(5000), microseconds(50));
  for (int i = 0; i < 20; ++i) {
    w.driver.passed(0);
    w.compute_for(microseconds(500), microseconds(1000000));
  }
  assert_true(w.driver.application_drives());
  w.compute_for(microseconds(5000), microseconds(1000000));
  assert_false(w.driver.application_drives());
}

// Who is about to sleep is served at once.
void a_reclaim_ends_patience(void**) {
  World w(2, true);
  w.waited_for = false;
  w.compute_for(microseconds(5000), microseconds(50));
  assert_true(w.driver.reclaim());
  assert_true(w.driver.step(w.now) == State::serving);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(who_does_not_poll_is_served),
      cmocka_unit_test(who_polls_drives),
      cmocka_unit_test(a_long_period_is_put_off_near_its_end),
      cmocka_unit_test(who_stops_polling_is_served_again),
      cmocka_unit_test(a_poll_now_and_then_is_not_driving),
      cmocka_unit_test(who_polls_seldom_does_not_put_off),
      cmocka_unit_test(each_socket_counts),
      cmocka_unit_test(long_passes_count_for_what_they_move),
      cmocka_unit_test(who_sends_by_posts_drives_with_passes),
      cmocka_unit_test(who_polls_no_more_but_posts_is_served),
      cmocka_unit_test(a_long_call_of_who_polls_is_waited_for),
      cmocka_unit_test(no_pass_is_wanted_beside_who_polls),
      cmocka_unit_test(who_polls_is_asked_again),
      cmocka_unit_test(who_is_kept_out_polls),
      cmocka_unit_test(what_is_left_to_the_thread_is_its),
      cmocka_unit_test(a_reclaim_is_not_lost),
      cmocka_unit_test(sends_leave_who_computes_alone),
      cmocka_unit_test(where_cpus_are_spare_sends_are_served_at_once),
      cmocka_unit_test(what_a_peer_waits_for_is_served_at_once_again),
      cmocka_unit_test(patience_lasts_while_the_application_calls),
      cmocka_unit_test(a_reclaim_ends_patience),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
