// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/thread.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>

#include "../vectors/vectors.h"
#include "failing_threads.h"
#include "sandbox.h"
#include "signal_mask.h"

namespace {

using namespace ewarp::llp;
using ewarp::test::failures_to_come;
using ewarp::test::kHolds;
using ewarp::test::mask_now;
using ewarp::test::same;

bool caused(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL;
}

// Every signal but those that cannot be blocked and those that the C library keeps to itself.
bool takes_only_faults(const sigset_t& mask) {
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (signal == SIGKILL || signal == SIGSTOP || (signal > SIGSYS && signal < SIGRTMIN)) continue;
    if (sigismember(&mask, signal) != (caused(signal) ? 0 : 1)) return false;
  }
  return true;
}

// The mask of a program that blocks some signals, one of those that we want open among them.
class Mask {
 public:
  Mask() {
    sigemptyset(&set_);
    for (const int signal : {SIGUSR1, SIGTERM, SIGSEGV}) sigaddset(&set_, signal);
    pthread_sigmask(SIG_SETMASK, &set_, &before_);
  }
  ~Mask() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  bool in_force() const { return same(mask_now(), set_); }

 private:
  sigset_t set_, before_;
};

void faults_are_open_and_all_else_is_blocked(void**) {
  const Mask mask;
  {
    const BlockedSignals outer;
    assert_true(takes_only_faults(mask_now()));
    { const BlockedSignals inner; }
    assert_true(takes_only_faults(mask_now()));
  }
  assert_true(mask.in_force());
}

void the_mask_comes_back_when_an_exception_passes(void**) {
  const Mask mask;
  try {
    const BlockedSignals blocked;
    throw 1;
  } catch (int) {
  }
  assert_true(mask.in_force());
}

struct Seen {
  sigset_t mask{};
  std::mutex mutex;
  std::condition_variable done;
  bool ran = false;

  static void* run(void* self) {
    auto& seen = *static_cast<Seen*>(self);
    const std::lock_guard lock(seen.mutex);
    seen.mask = mask_now();
    seen.ran = true;
    seen.done.notify_one();
    return self;
  }
};

void a_thread_runs_with_that_mask(void**) {
  const Mask mask;
  Seen seen;
  pthread_t thread{};
  assert_int_equal(start_joinable(&Seen::run, &seen, &thread), 0);
  assert_true(mask.in_force());
  void* result = nullptr;
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_ptr_equal(result, &seen);
  assert_true(seen.ran && takes_only_faults(seen.mask));
}

void a_detached_thread_as_well(void**) {
  const Mask mask;
  static Seen seen;  // the thread may still be about to let go of it when the test has ended
  assert_int_equal(start_detached(&Seen::run, &seen), 0);
  assert_true(mask.in_force());
  std::unique_lock lock(seen.mutex);
  seen.done.wait(lock, [] { return seen.ran; });
  assert_true(takes_only_faults(seen.mask));
}

void no_thread_no_trace(void**) {
  const Mask mask;
  Seen seen;
  const pthread_t nobody = pthread_self();
  pthread_t thread = nobody;
  failures_to_come = 2;
  assert_int_equal(start_joinable(&Seen::run, &seen, &thread), EAGAIN);
  assert_true(mask.in_force());
  assert_true(pthread_equal(thread, nobody) != 0);
  assert_int_equal(start_detached(&Seen::run, &seen), EAGAIN);
  assert_true(mask.in_force());
  assert_false(seen.ran);
  // And the next one starts.
  assert_int_equal(start_joinable(&Seen::run, &seen, &thread), 0);
  assert_int_equal(pthread_join(thread, nullptr), 0);
  assert_true(seen.ran);
}

// The same with the limit itself, in a child that is nobody: root has none.
void the_kernel_refuses_a_thread(void**) {
  ewarp::test::in_child("RLIMIT_NPROC", [] {
    constexpr uid_t kNobody = 65534;
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_NPROC, &none) != 0) return 1;
    if (geteuid() == 0 && setresuid(kNobody, kNobody, kNobody) != 0) return 2;
    const sigset_t before = mask_now();
    Seen seen;
    pthread_t thread{};
    if (start_joinable(&Seen::run, &seen, &thread) != EAGAIN) return 3;
    if (start_detached(&Seen::run, &seen) != EAGAIN) return 4;
    return same(mask_now(), before) ? kHolds : 5;
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(faults_are_open_and_all_else_is_blocked),
      cmocka_unit_test(the_mask_comes_back_when_an_exception_passes),
      cmocka_unit_test(a_thread_runs_with_that_mask),
      cmocka_unit_test(a_detached_thread_as_well),
      cmocka_unit_test(no_thread_no_trace),
      cmocka_unit_test(the_kernel_refuses_a_thread),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
