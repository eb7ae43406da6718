// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The end of a process, and fork(), at moments when the engine is in use: nobody waits for ever.
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "provider/engine/engine.h"
#include "provider/engine/reactor.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::test;

namespace {

// Runs body in a child that uses the engine for the first time there. How the child ended; SIGALRM: it hung.
int in_child(void (*body)()) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    body();
    exit(0);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

struct Pair {
  Pair() { join(a, b, params(true), params(false)); }
  bool talks() {
    return b.receive({b.sge(0, 8)}) == 0 && a.send(IBV_WR_SEND, {a.sge(0, 8)}) == 0 &&
           a.wait().status == IBV_WC_SUCCESS && b.wait().status == IBV_WC_SUCCESS;
  }
  Side a{4096}, b{4096};
};

Pair* pair = nullptr;

// Exit handlers run in the opposite order of their registration: this one behind the engine's own.
void destroys_in_an_exit_handler() {
  std::atexit([] {
    delete pair;
    if (engine().busy()) _exit(3);
  });
  pair = new Pair;
  if (!pair->talks()) _exit(2);
}

void posts_in_an_exit_handler() {
  std::atexit([] {
    if (pair->a.send(IBV_WR_SEND, {pair->a.sge(0, 8)}) != 0) return;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    if (pair->b.qp->modify(attr, IBV_QP_STATE) != 0) _exit(3);
  });
  pair = new Pair;
  if (!pair->talks()) _exit(2);
}

// A signal handler that interrupts the holder.
template <class F>
void while_held(F handler) {
  static F action = handler;
  signal(SIGUSR1, [](int) { action(); });
  engine().acquire();  // not run(): the background thread, which takes no signals, would do it if it has the engine
  raise(SIGUSR1);
  engine().leave();
}

void exits_within_a_pass() {
  pair = new Pair;
  if (!pair->talks()) _exit(2);
  while_held([] { exit(0); });
  _exit(3);
}

int fork_and_ask(void (*body)()) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    body();
    _exit(0);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child ? status : -1;
}

void forks_within_a_pass() {
  pair = new Pair;
  if (!pair->talks()) _exit(2);
  static int status;
  static pid_t child;
  while_held([] {
    child = fork();
    if (child == 0) alarm(10);
  });
  if (child == 0) {
    // The child left the pass that it came into the world in, and has no engine.
    if (!forked_child() || engine().busy()) _exit(3);
    pair->a.send(IBV_WR_SEND, {pair->a.sge(0, 8)});
    ibv_wc wc{};
    pair->a.cq.poll(1, &wc);
    _exit(0);
  }
  if (waitpid(child, &status, 0) != child || status != 0) _exit(4);
  if (!pair->talks()) _exit(5);
}

// Threads of the parent wait for the engine while it forks.
void forks_while_tasks_wait() {
  pair = new Pair;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!stop) engine().run([] {});
    });
  for (int i = 0; i < 50; ++i) {
    const int status = fork_and_ask([] {
      if (!forked_child()) _exit(3);
      engine().run([] {});
    });
    if (status != 0) _exit(4);
  }
  stop = true;
  for (auto& t : threads) t.join();
  if (!pair->talks()) _exit(5);
}

void check(void (*body)()) {
  const int status = in_child(body);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

void exit_handlers_may_use_the_engine(void**) {
  check(destroys_in_an_exit_handler);
  check(posts_in_an_exit_handler);
}

void exit_in_a_pass(void**) {
  check(exits_within_a_pass);
}

void fork_in_a_pass(void**) {
  check(forks_within_a_pass);
}

void fork_with_tasks_pending(void**) {
  check(forks_while_tasks_wait);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(exit_handlers_may_use_the_engine),
      cmocka_unit_test(exit_in_a_pass),
      cmocka_unit_test(fork_in_a_pass),
      cmocka_unit_test(fork_with_tasks_pending),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
