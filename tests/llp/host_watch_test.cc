// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Hosts that answer slowly, not at all, or no more, as TCP shows them, in virtual time.
#include "llp/host_watch.h"

#include <algorithm>
#include <functional>

// Last: cmocka's macros (fail) would cut through other headers.
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

using namespace ewarp::llp;
using namespace std::chrono_literals;

namespace {

using std::chrono::milliseconds;

// A sender whose question is repeated after 200 ms, and then after twice the pause each time, two minutes at most.
class Sender {
 public:
  // What becomes of a question that is asked at this time.
  enum class Fate { unanswered, answered, forward };
  using Fates = std::function<Fate(milliseconds at, unsigned number)>;

  // probes: each answer makes the count of questions begin anew; else only one that brings something forward does.
  Sender(bool probes, Fates fates) : probes_(probes), fates_(std::move(fates)) {}

  // Looks once a second; when the host was found gone, or `until`.
  milliseconds found(milliseconds limit, milliseconds until) {
    for (milliseconds now = 1s; now < until; now += 1s) {
      for (; next_ <= now; ask()) continue;
      if (watch_.gone({asked_, now - heard_}, limit, HostWatch::Clock::time_point(1h + now))) return now;
    }
    return until;
  }

 private:
  void ask() {
    const milliseconds at = next_;
    ++asked_;
    ++number_;
    pause_ = std::min(2 * pause_, milliseconds(2min));
    switch (fates_(at, number_)) {
      case Fate::unanswered:
        break;
      case Fate::forward:
        asked_ = 0;
        pause_ = 200ms;
        heard_ = at;
        break;
      case Fate::answered:
        if (probes_) asked_ = 0;
        heard_ = at;
        break;
    }
    next_ = at + pause_;
  }

  const bool probes_;
  const Fates fates_;
  HostWatch watch_;
  milliseconds next_ = 200ms, pause_ = 200ms, heard_{0};
  unsigned asked_ = 0, number_ = 0;
};

using Fate = Sender::Fate;

void a_host_that_is_gone_is_found_when_the_time_is_over(void**) {
  const auto silent = [](milliseconds, unsigned) { return Fate::unanswered; };
  for (const bool probes : {false, true}) {
    assert_int_equal(Sender(probes, silent).found(15s, 1h).count(), milliseconds(15s).count());
    // What was asked before the first look, two questions, might have been answered; three more take until 6.2 s.
    assert_int_equal(Sender(probes, silent).found(1s, 1h).count(), milliseconds(7s).count());
  }
}

// Its program does not read, for an hour: a window of zero that is asked about, or segments that find no memory.
void a_host_that_answers_is_there(void**) {
  const auto answers = [](milliseconds, unsigned) { return Fate::answered; };
  for (const bool probes : {false, true})
    for (const milliseconds limit : {1s, 15s})
      assert_int_equal(Sender(probes, answers).found(limit, 1h).count(), milliseconds(1h).count());
}

void two_losses_of_three_are_no_end(void**) {
  for (const bool probes : {false, true})
    for (const Fate fate : {Fate::answered, Fate::forward}) {
      const auto lossy = [fate](milliseconds, unsigned n) { return n % 3 == 0 ? fate : Fate::unanswered; };
      assert_int_equal(Sender(probes, lossy).found(1s, 1h).count(), milliseconds(1h).count());
    }
}

// The next three questions: after two minutes each at the most.
void a_host_that_answered_for_long_and_then_vanishes(void**) {
  for (const bool probes : {false, true})
    for (const milliseconds end : {milliseconds(3s), milliseconds(1min), milliseconds(10min)}) {
      const auto until = [end](milliseconds at, unsigned) { return at < end ? Fate::answered : Fate::unanswered; };
      const auto found = Sender(probes, until).found(1s, 1h);
      // Each pause is as long as all before it, and twice as long as the last one.
      assert_in_range(found.count(), (end + 1s).count(), (end + std::min(milliseconds(6min), 15 * end) + 2s).count());
    }
}

// What was asked before all was acknowledged says nothing of what is sent later.
void idle_streams_begin_anew(void**) {
  HostWatch watch;
  const auto at = [](milliseconds t) { return HostWatch::Clock::time_point(1h + t); };
  assert_false(watch.gone({3, 2s}, 1s, at(2s)));
  assert_true(watch.gone({6, 3s}, 1s, at(3s)));
  watch.idle();
  assert_false(watch.gone({6, 2s}, 1s, at(10min)));
  assert_false(watch.gone({8, 4s}, 1s, at(10min + 2s)));
  assert_true(watch.gone({9, 6s}, 1s, at(10min + 4s)));
}

// A connection that has been silent because nobody spoke: its host has the whole limit to answer what is sent now.
void silence_before_is_none(void**) {
  HostWatch watch;
  const HostWatch::Clock::time_point at{1h};
  assert_false(watch.gone({0, 20s}, 15s, at));
  assert_false(watch.gone({3, 22s}, 15s, at + 2s));
  assert_false(watch.gone({6, 33s}, 15s, at + 13s));
  assert_true(watch.gone({7, 35s}, 15s, at + 15s));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(silence_before_is_none),
      cmocka_unit_test(a_host_that_is_gone_is_found_when_the_time_is_over),
      cmocka_unit_test(a_host_that_answers_is_there),
      cmocka_unit_test(two_losses_of_three_are_no_end),
      cmocka_unit_test(a_host_that_answered_for_long_and_then_vanishes),
      cmocka_unit_test(idle_streams_begin_anew),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
