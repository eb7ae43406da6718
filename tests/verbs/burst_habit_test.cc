// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether posts wait for the next poll: learnt from what followed earlier ones, of times and polls that are made up.
#include "provider/engine/burst_habit.h"

#include "tests/wire/scene.h"

using namespace ewarp::verbs;
using std::chrono::microseconds;

namespace {

using Verdict = BurstHabit::Verdict;
constexpr auto kBound = microseconds(50);
constexpr auto kSending = microseconds(10);  // of one post

struct Application {
  BurstHabit habit;
  BurstHabit::Time now{std::chrono::hours(1)};
  BurstHabit::Time oldest{};  // of what waits
  unsigned asked = 0;         // what time it is
  bool local = false;

  auto clock() {
    return [this] {
      ++asked;
      return now;
    };
  }
  Verdict posted(std::size_t octets = 8, bool drives = true, microseconds bound = kBound) {
    now += std::chrono::nanoseconds(500);
    const bool waited = habit.waits();
    Posted what{.local = local};
    what.add(octets);
    const Verdict verdict = habit.posted(what, bound, drives, clock());
    if (!waited) oldest = now;
    if (verdict != Verdict::wait) now += kSending;
    if (habit.pretends()) habit.sent(now);
    return verdict;
  }
  auto waited() const { return now - oldest; }
  // True: it waits.
  bool post(std::size_t octets = 8, bool drives = true) { return posted(octets, drives) == Verdict::wait; }
  // How many of them wait.
  unsigned posts(unsigned n) {
    unsigned waiting = 0;
    for (unsigned i = 0; i < n; ++i) waiting += post();
    return waiting;
  }
  void compute(unsigned us) { now += microseconds(us); }
  void poll() { habit.polled(kBound, clock()); }
  void burst(unsigned us_before_the_poll = 1) {
    posts(8);
    compute(us_before_the_poll);
    poll();
  }
  // How many bursts that are polled for at once it takes until posts wait.
  unsigned bursts_until_trusted() {
    for (unsigned n = 0;; ++n) {
      const unsigned waiting = posts(8);
      poll();
      if (waiting > 0) return n;
      assert_true(n < 1000);
    }
  }
};

void who_polls_behind_its_posts_is_trusted(void**) {
  Application a;
  assert_int_equal(a.bursts_until_trusted(), 4);
  for (int i = 0; i < 20; ++i) {
    assert_false(a.habit.waits());
    assert_int_equal(a.posts(8), 7);  // the first leaves at once
    assert_true(a.habit.waits());
    a.poll();
  }
}

void a_single_post_never_waits(void**) {
  Application a;
  a.bursts_until_trusted();
  a.asked = 0;
  for (int i = 0; i < 100; ++i) {
    assert_false(a.post());
    a.poll();
  }
  assert_int_equal(a.asked, 0);  // nor does it cost a look at the clock
}

void single_posts_teach_nothing(void**) {
  Application a;
  for (int i = 0; i < 100; ++i) {
    a.post();
    a.poll();
  }
  assert_int_equal(a.posts(8), 0);
}

void who_computes_first_is_not_trusted(void**) {
  Application a;
  for (int i = 0; i < 100; ++i) {
    assert_int_equal(a.posts(8), 0);
    a.compute(60);
    a.poll();
  }
}

// It is trusted again when as much would have been saved as was lost.
void who_comes_late_has_to_make_up_for_it(void**) {
  Application a;
  a.bursts_until_trusted();
  a.burst(600);  // 17 us had been saved beyond what the first ones have to, and 28 with the posts that waited
  assert_in_range(a.bursts_until_trusted(), 600 / 28 - 2, 600 / 28 + 1);
}

// But no more than 10 ms: it may have changed.
void what_was_long_ago_is_forgotten(void**) {
  for (const unsigned us : {10'000u, 1'000'000u}) {
    Application a;
    for (int i = 0; i < 100; ++i) a.burst(us);
    assert_in_range(a.bursts_until_trusted(), 10'000 / 28, 10'000 / 28 + 1);
    for (int i = 0; i < 10'000; ++i) a.burst();
    unsigned late = 0;
    for (int i = 0; i < 1000; ++i) {
      late += a.posts(8) > 0;
      a.compute(1000);
      a.poll();
    }
    assert_in_range(late, 10, 11);
  }
}

// Twenty bursts in time and one that is late, again and again: its messages are late a few times, and then no more.
void who_is_late_now_and_then_is_soon_not_trusted(void**) {
  Application a;
  unsigned late = 0;
  for (int i = 0; i < 1000; ++i) {
    for (int n = 0; n < 20; ++n) a.burst();
    late += a.posts(8) > 0;
    a.compute(1000);
    a.poll();
  }
  assert_in_range(late, 1, 5);
}

// Others take the CPU from it for a time slice now and then. What that costs its messages is little beside what is
// saved.
void who_loses_the_cpu_now_and_then_is_trusted(void**) {
  Application a;
  a.bursts_until_trusted();
  for (int i = 0; i < 1000; ++i) {
    for (int n = 0; n < 30; ++n) {
      assert_in_range(a.posts(64), 60, 64);
      if (n == 0 && i > 0) a.compute(4000);
      a.poll();
    }
  }
}

// However often it is late, and however late: no more is lost than was saved, but for the few times in which it is
// found out.
void no_more_is_lost_than_was_saved(void**) {
  for (const unsigned us : {60, 200, 1000, 8000}) {
    for (const int in_time : {1, 5, 20, 200}) {
      Application a;
      std::chrono::nanoseconds saved{}, lost{};
      for (int i = 0; i < 2000; ++i) {
        for (int n = 0; n < in_time; ++n) {
          saved += a.posts(8) * microseconds(4);
          a.poll();
        }
        const bool waited = a.posts(8) > 0;
        a.compute(us);
        if (waited) lost += microseconds(us);
        a.poll();
      }
      assert_true(lost <= saved + 16 * microseconds(us));
    }
  }
}

void only_so_many_wait(void**) {
  Application a;
  a.bursts_until_trusted();
  assert_int_equal(a.posts(65), 64);
  assert_true(a.habit.waits());
  assert_true(a.posted() == Verdict::pass);  // and takes all with it
  assert_false(a.habit.waits());
  assert_true(a.post());
}

// Where a program does more between two posts, fewer leave together, but in time.
void slower_posts_leave_in_shorter_trains(void**) {
  for (const unsigned us : {1u, 2u}) {
    Application a;
    unsigned waiting = 0, trains = 0;
    for (int i = 0; i < 64 * 20; ++i) {
      const Verdict verdict = a.posted();
      waiting += verdict == Verdict::wait;
      trains += verdict == Verdict::pass;
      if (a.habit.waits()) assert_true(a.waited() <= kBound);
      a.compute(us);
    }
    assert_in_range(waiting, 64 * 17, 64 * 20);
    assert_in_range(trains, 36, 80);
  }
}

void only_so_many_octets_wait(void**) {
  for (const bool local : {false, true}) {
    const std::size_t most = local ? BurstHabit::kLocalOctets : BurstHabit::kOctets;
    Application a;
    a.local = local;
    a.bursts_until_trusted();
    a.post();
    assert_false(a.post(most + 1));
    assert_true(a.post(most - 6 * 1024));
    assert_true(a.post(6 * 1024));
    assert_true(a.posted(1) == Verdict::pass);
    assert_false(a.habit.waits());
    assert_true(a.posted(most + 1) == Verdict::send);  // with nothing that waits it is no train
  }
}

// Of posts that are copied less waits, and long ones between them do not count.
void fewer_octets_of_short_posts_wait(void**) {
  Application a;
  a.bursts_until_trusted();
  a.post();
  for (std::size_t copied = Posted::kCopied; copied <= BurstHabit::kCopiedOctets; copied += Posted::kCopied) {
    assert_true(a.post(Posted::kCopied));
    assert_true(a.post(Posted::kCopied + 1));
  }
  assert_true(a.post(Posted::kCopied + 1));
  assert_true(a.posted(1) == Verdict::pass);
}

// Many short ones in one call are short ones.
void a_list_counts_by_its_messages(void**) {
  Posted what;
  for (int i = 0; i < 64; ++i) what.add(1024);
  what.add(Posted::kCopied + 1);
  assert_int_equal(what.octets, 64 * 1024 + Posted::kCopied + 1);
  assert_int_equal(what.copied, 64 * 1024);
}

// It computes between large posts: none waits longer than the bound, if another one follows.
void large_posts_that_follow_slowly_are_in_time(void**) {
  Application a;
  a.bursts_until_trusted();
  for (int i = 0; i < 8; ++i) a.burst();
  a.post(256 * 1024);
  unsigned waiting = 0;
  for (int i = 0; i < 30; ++i) {
    const bool waits = a.post(256 * 1024);
    if (waits) assert_true(a.waited() < kBound);
    waiting += waits;
    a.compute(30);
  }
  assert_in_range(waiting, 10, 20);  // each second one leaves with the first
}

// Nobody polls meanwhile.
void slow_posts_end_the_trust(void**) {
  Application a;
  a.bursts_until_trusted();
  for (int i = 0; i < 66; ++i) {
    a.post();
    a.compute(5);
  }
  assert_false(a.habit.waits());
  assert_false(a.post());
}

// They would wait for somebody who does not come. But it is learnt, and said, that this thread could drive.
void nothing_waits_where_nobody_drives(void**) {
  Application a;
  unsigned waiting = 0, passes = 0;
  for (int i = 0; i < 64 * 10; ++i) {
    const Verdict verdict = a.posted(8, false);
    waiting += verdict == Verdict::wait;
    passes += verdict == Verdict::pass;
  }
  assert_int_equal(waiting, 0);
  assert_in_range(passes, 8, 9);
  assert_true(a.post(8, true));
  assert_false(a.post(8, false));  // and takes the other one with it
  assert_false(a.habit.waits());
}

// It asks for somebody who looks whether it drives; more rarely where that was in vain.
void it_asks_to_drive(void**) {
  Application a;
  unsigned asked = 0, bursts = 0;
  for (; bursts < 1000; ++bursts) {
    for (int i = 0; i < 8; ++i) a.posted(8, false);
    a.poll();
    asked += a.habit.asks();
    assert_false(a.habit.asks());
  }
  assert_in_range(asked, 8, 10);
  assert_true(a.habit.took() > microseconds(30));
  a.posts(8);
  assert_false(a.habit.asks());
  a.poll();
  assert_true(a.habit.took() < microseconds(5));
  for (int i = 0; i < 8; ++i) a.posted(8, false);
  a.poll();
  assert_true(a.habit.asks());  // at once: it has driven
}

// Between its posts it looks at memory for the peer's answer, which comes after some us.
void who_waits_by_looking_at_memory_is_not_trusted(void**) {
  for (const unsigned us : {4u, 10u}) {
    Application a;
    for (int i = 0; i < 50; ++i) {
      for (int n = 0; n < 32; ++n) {
        assert_false(a.post());
        a.compute(us);
      }
      a.poll();
    }
  }
}

void nothing_waits_without_the_option(void**) {
  Application a;
  for (int i = 0; i < 200; ++i) {
    assert_true(a.posted(8, true, microseconds(0)) == Verdict::send);
    if (i % 8 == 0) a.habit.polled(microseconds(0), a.clock());
  }
  assert_int_equal(a.asked, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(who_polls_behind_its_posts_is_trusted),
      cmocka_unit_test(a_single_post_never_waits),
      cmocka_unit_test(single_posts_teach_nothing),
      cmocka_unit_test(who_computes_first_is_not_trusted),
      cmocka_unit_test(who_comes_late_has_to_make_up_for_it),
      cmocka_unit_test(what_was_long_ago_is_forgotten),
      cmocka_unit_test(who_is_late_now_and_then_is_soon_not_trusted),
      cmocka_unit_test(who_loses_the_cpu_now_and_then_is_trusted),
      cmocka_unit_test(no_more_is_lost_than_was_saved),
      cmocka_unit_test(only_so_many_wait),
      cmocka_unit_test(slower_posts_leave_in_shorter_trains),
      cmocka_unit_test(only_so_many_octets_wait),
      cmocka_unit_test(fewer_octets_of_short_posts_wait),
      cmocka_unit_test(a_list_counts_by_its_messages),
      cmocka_unit_test(large_posts_that_follow_slowly_are_in_time),
      cmocka_unit_test(slow_posts_end_the_trust),
      cmocka_unit_test(nothing_waits_where_nobody_drives),
      cmocka_unit_test(it_asks_to_drive),
      cmocka_unit_test(who_waits_by_looking_at_memory_is_not_trusted),
      cmocka_unit_test(nothing_waits_without_the_option),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
