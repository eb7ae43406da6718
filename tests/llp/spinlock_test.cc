// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/spinlock.h"

#include <mutex>
#include <thread>
#include <vector>

#include "../vectors/vectors.h"
#include "one_cpu.h"
#include "sandbox.h"

namespace {

using namespace ewarp::llp;
using namespace std::chrono_literals;

void one_at_a_time(void**) {
  constexpr int kRounds = 20000;
  Spinlock lock;
  long counter = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const std::lock_guard guard(lock);
        ++counter;
      }
    });
  for (std::thread& thread : threads) thread.join();
  assert_int_equal(counter, 4 * kRounds);
}

void is_not_recursive(void**) {
  Spinlock lock;
  assert_true(lock.try_lock());
  assert_false(lock.try_lock());
  lock.unlock();
  assert_true(lock.try_lock());
  lock.unlock();
}

// sched_yield() of a SCHED_FIFO thread lets no normal thread run.
void the_holder_runs_on_the_cpu_of_a_real_time_waiter(void**) {
  Spinlock lock;
  const auto cost = ewarp::test::cost_of_waiting([&] { lock.lock(); }, [&] { lock.unlock(); },
                                                 [&] {
                                                   lock.lock();
                                                   lock.unlock();
                                                 });
  if (cost.count() < 0) {
    print_message("skipped: needs CAP_SYS_NICE\n");
    skip();
  }
  assert_true(cost < ewarp::test::kCheapWait);
}

// Whoever held it is in the parent.
void a_child_does_not_wait_for_its_parent(void**) {
  Spinlock held, other;
  held.lock();
  ewarp::test::in_child("fork", [&] {
    alarm(20);
    Spinlock::after_fork_child();
    held.lock();
    if (held.try_lock()) return 1;
    held.unlock();
    if (!held.try_lock() || !other.try_lock() || other.try_lock()) return 2;
    return ewarp::test::kHolds;
  });
  assert_false(held.try_lock());
  held.unlock();
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(one_at_a_time),
      cmocka_unit_test(is_not_recursive),
      cmocka_unit_test(the_holder_runs_on_the_cpu_of_a_real_time_waiter),
      cmocka_unit_test(a_child_does_not_wait_for_its_parent),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
