// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Holding the engine: what one thread wants done while another one holds it, the holder does.
#include "provider/engine/engine_lock.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../vectors/vectors.h"

namespace {

using ewarp::verbs::EngineLock;
using ewarp::verbs::Kickable;

struct Lock : EngineLock {};

// A thread that holds the engine until it is told to leave.
class Holder {
 public:
  explicit Holder(Lock& lock) : lock_(lock), thread_([this] { hold(); }) {
    while (!holds_) std::this_thread::yield();
  }
  ~Holder() { leave(); }
  void leave() {
    leave_ = true;
    if (thread_.joinable()) thread_.join();
  }
  pthread_t thread() { return thread_.native_handle(); }

 private:
  void hold() {
    assert_true(lock_.try_enter());
    holds_ = true;
    while (!leave_) std::this_thread::yield();
    lock_.leave();
  }
  Lock& lock_;
  std::atomic<bool> holds_{false}, leave_{false};
  std::thread thread_;
};

void wait_for_a_task(const Lock& lock) {
  while (!lock.pushed()) std::this_thread::yield();
}

void who_holds_it_calls_at_once(void**) {
  Lock lock;
  int calls = 0;
  assert_false(lock.held());
  lock.run([&] {
    assert_true(lock.held());
    lock.run([&] { ++calls; });
    assert_int_equal(calls, 1);
    assert_true(lock.held());
  });
  assert_false(lock.busy());
  assert_int_equal(calls, 1);
}

void the_holder_does_it(void**) {
  Lock lock;
  Holder holder(lock);
  std::thread::id by;
  std::atomic<bool> done{false};
  std::thread caller([&] {
    lock.run([&] {
      assert_true(lock.held());
      by = std::this_thread::get_id();
    });
    assert_false(lock.held());
    done = true;
  });
  wait_for_a_task(lock);
  const auto caller_id = caller.get_id();
  assert_false(done);
  holder.leave();
  caller.join();
  assert_true(done && by != caller_id);
  assert_false(lock.busy());
}

void what_it_throws_comes_back(void**) {
  Lock lock;
  bool caught = false;
  try {
    lock.run([] { throw std::runtime_error("alone"); });
  } catch (const std::runtime_error&) {
    caught = true;
  }
  assert_true(caught);
  assert_false(lock.busy());
  Holder holder(lock);
  std::atomic<bool> caught_there{false};
  std::thread caller([&] {
    try {
      lock.run([] { throw std::bad_alloc(); });
    } catch (const std::bad_alloc&) {
      caught_there = true;
    }
  });
  wait_for_a_task(lock);
  holder.leave();
  caller.join();
  assert_true(caught_there);
  assert_false(lock.busy());
}

struct Counted final : Kickable {
  void serve() override {
    ++served;
    if (fails) throw std::bad_alloc();
  }
  void broken() noexcept override { ++broke; }
  int served = 0, broke = 0;
  bool fails = false;
};

void kicks_are_served_by_somebody(void**) {
  Lock lock;
  Counted object;
  lock.kick(object);
  assert_int_equal(object.served, 1);
  {
    Holder holder(lock);
    lock.kick(object);
    lock.kick(object);  // it is on its way
    assert_int_equal(object.served, 1);
  }
  assert_int_equal(object.served, 2);
  // A holder's own are served when it leaves.
  lock.run([&] {
    lock.kick(object);
    assert_int_equal(object.served, 2);
  });
  assert_int_equal(object.served, 3);
  object.fails = true;
  lock.kick(object);
  assert_int_equal(object.broke, 1);
  assert_false(lock.busy());
}

void it_is_handed_over(void**) {
  Lock lock;
  Holder holder(lock);
  std::atomic<bool> owns{false}, let_go{false};
  std::thread heir([&] {
    lock.acquire();
    owns = lock.held();
    while (!let_go) std::this_thread::yield();
    lock.leave();
  });
  wait_for_a_task(lock);
  assert_false(owns);
  holder.leave();
  while (!owns) std::this_thread::yield();
  assert_true(lock.busy());
  assert_false(lock.try_enter());
  let_go = true;
  heir.join();
  assert_false(lock.busy());
}

void who_gave_up_does_not_get_it(void**) {
  Lock lock;
  Holder holder(lock);
  assert_false(lock.acquire(std::chrono::milliseconds(1)));
  assert_false(lock.held());
  holder.leave();
  assert_false(lock.busy());
  assert_true(lock.acquire(std::chrono::milliseconds(1)));
  lock.leave();
}

// Threads that push without pause: all of it is done once, nobody waits for ever.
void storm(void**) {
  constexpr int kThreads = 6, kEach = 20000;
  Lock lock;
  long sum = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        if (i % 1000 == t) {
          lock.acquire();
          ++sum;
          lock.leave();
        } else {
          lock.run([&] { ++sum; });
        }
      }
    });
  for (auto& t : threads) t.join();
  assert_int_equal(sum, long{kThreads} * kEach);
  assert_false(lock.busy() || lock.pushed());
}

// A leaving thread does not serve others for ever: somebody else is told, and goes on.
void relief(void**) {
  static std::atomic<int> told;
  told = 0;
  struct Endless final : Kickable {
    void serve() override {
      if (++served < 1000) lock->push(*this);
    }
    Lock* lock = nullptr;
    int served = 0;
  };
  Lock lock;
  lock.set_relief([] { ++told; });
  Endless object;
  object.lock = &lock;
  lock.kick(object);
  assert_int_equal(told, 1);
  assert_true(object.served < 1000 && lock.pushed() && !lock.busy());
  lock.set_relief(nullptr);
  assert_true(lock.try_enter());
  lock.leave();
  assert_int_equal(object.served, 1000);
}

#ifndef __SANITIZE_ADDRESS__  // for it the stack that a cancelled thread has left is still in use
// Deferred cancellation strikes behind the pass, not within.
void a_holder_is_not_cancelled(void**) {
  Lock lock;
  std::atomic<int> stage{0};
  std::thread victim([&] {
    lock.run([&] {
      stage = 1;
      while (stage == 1) std::this_thread::yield();
      pthread_testcancel();
      stage = 3;
    });
    pthread_testcancel();
    stage = 4;
  });
  while (stage != 1) std::this_thread::yield();
  assert_int_equal(pthread_cancel(victim.native_handle()), 0);
  stage = 2;
  victim.join();
  assert_int_equal(stage, 3);
  assert_false(lock.busy());
}

// Nor a thread whose frame a holder is about to use.
void who_waits_is_not_cancelled(void**) {
  Lock lock;
  Holder holder(lock);
  std::atomic<int> stage{0};
  std::thread victim([&] {
    lock.run([&] { stage = 1; });
    pthread_testcancel();
    stage = 2;
  });
  wait_for_a_task(lock);
  assert_int_equal(pthread_cancel(victim.native_handle()), 0);
  holder.leave();
  victim.join();
  assert_int_equal(stage, 1);
  assert_false(lock.busy());
}
#endif

#ifndef __SANITIZE_THREAD__  // which allows no threads in a forked child
// What other threads have pushed is nobody's in a forked child.
void tasks_of_the_parent_die_with_its_threads(void**) {
  Lock lock;
  Counted object;
  std::atomic<int> done{0};
  lock.acquire();
  std::thread caller([&] { lock.run([&] { ++done; }); });
  wait_for_a_task(lock);
  lock.push(object);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    alarm(10);
    lock.let_go_in_child();
    int calls = 0;
    lock.run([&] { ++calls; });
    lock.kick(object);
    _exit(calls == 1 && done == 0 && object.served == 1 && !lock.busy() ? 0 : 1);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  lock.leave();
  caller.join();
  assert_int_equal(done, 1);
  assert_int_equal(object.served, 1);
}
#endif

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(who_holds_it_calls_at_once),
      cmocka_unit_test(the_holder_does_it),
      cmocka_unit_test(what_it_throws_comes_back),
      cmocka_unit_test(kicks_are_served_by_somebody),
      cmocka_unit_test(it_is_handed_over),
      cmocka_unit_test(who_gave_up_does_not_get_it),
      cmocka_unit_test(storm),
      cmocka_unit_test(relief),
#ifndef __SANITIZE_ADDRESS__
      cmocka_unit_test(a_holder_is_not_cancelled),
      cmocka_unit_test(who_waits_is_not_cancelled),
#endif
#ifndef __SANITIZE_THREAD__
      cmocka_unit_test(tasks_of_the_parent_die_with_its_threads),
#endif
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
