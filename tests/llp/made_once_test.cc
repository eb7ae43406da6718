// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/made_once.h"

#include <atomic>
#include <barrier>
#include <stdexcept>
#include <thread>

#include "../vectors/vectors.h"

namespace {

using ewarp::llp::MadeOnce;

std::atomic<int> alive{0};

// Counts those that are there.
struct Counted {
  explicit Counted(int n) : number(n) { ++alive; }
  Counted(const Counted&) = delete;
  Counted(Counted&& other) noexcept : number(other.number) { ++alive; }
  ~Counted() { --alive; }
  const int number;
};

void is_made_by_who_asks_first_and_kept(void**) {
  static constinit MadeOnce<Counted> once;
  int made = 0, kept = 0;
  const auto make = [&] { return Counted(++made); };
  const auto count = [&](const Counted&) { ++kept; };
  const int before = alive;
  const Counted& first = once.get(make, count);
  assert_int_equal(first.number, 1);
  assert_ptr_equal(&once.get(make, count), &first);
  assert_ptr_equal(&once.get(make), &first);
  assert_int_equal(made, 1);
  assert_int_equal(kept, 1);
  assert_int_equal(alive - before, 1);
}

// Neither is done with making before the other has begun.
void of_two_at_once_one_wins(void**) {
  static constinit MadeOnce<Counted> once;
  const int before = alive;
  std::barrier both_make(2);
  std::atomic<int> kept{0}, kept_number{0};
  const Counted* got[2] = {};
  const auto ask = [&](int i) {
    got[i] = &once.get(
        [&] {
          both_make.arrive_and_wait();
          return Counted(i + 1);
        },
        [&](const Counted& value) {
          ++kept;
          kept_number = value.number;
        });
  };
  std::thread other([&] { ask(1); });
  ask(0);
  other.join();
  assert_ptr_equal(got[0], got[1]);
  assert_int_equal(alive - before, 1);  // the loser's is dropped
  assert_int_equal(kept, 1);
  assert_int_equal(kept_number, got[0]->number);
}

// As a log line about options asks for the options.
void the_winners_action_may_ask(void**) {
  static constinit MadeOnce<Counted> once;
  const Counted* seen = nullptr;
  const auto make = [] { return Counted(3); };
  const Counted& value = once.get(make, [&](const Counted&) { seen = &once.get(make); });
  assert_ptr_equal(seen, &value);
}

void what_cannot_be_made_is_tried_again(void**) {
  static constinit MadeOnce<Counted> once;
  bool thrown = false;
  try {
    once.get([]() -> Counted { throw std::runtime_error("not yet"); });
  } catch (const std::runtime_error&) {
    thrown = true;
  }
  assert_true(thrown);
  assert_int_equal(once.get([] { return Counted(4); }).number, 4);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(is_made_by_who_asks_first_and_kept),
      cmocka_unit_test(of_two_at_once_one_wins),
      cmocka_unit_test(the_winners_action_may_ask),
      cmocka_unit_test(what_cannot_be_made_is_tried_again),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
