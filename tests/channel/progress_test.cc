// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// When the progress thread works and when it leaves others alone, with event descriptors in the adapter's place.
#include "mpi_shim/channel/progress.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tests/channel/scene.h"
#include "tests/llp/failing_threads.h"
#include "tests/llp/signal_mask.h"

using namespace ewarp::channel;
using namespace std::chrono_literals;

namespace {

class FakeDriven final : public Driven {
 public:
  FakeDriven() : completions(eventfd(0, EFD_NONBLOCK)), connections(eventfd(0, EFD_NONBLOCK)) {}
  ~FakeDriven() override {
    progress.stop();
    close(completions);
    close(connections);
  }
  void drive(bool) override {
    const std::lock_guard lock(mutex);
    blocked = ewarp::test::mask_now();
    eventfd_t ignored;
    eventfd_read(connections, &ignored);
    progress.set_armed(Wake::control);
    ++driven;
  }
  void take_events() override {
    const std::lock_guard lock(mutex);
    eventfd_t ignored;
    eventfd_read(completions, &ignored);
    progress.set_armed(Wake::nothing);
    ++taken;
  }
  int completion_fd() const override { return completions; }
  int connection_fd() const override { return connections; }
  bool needs_help() override { return true; }
  int patience_ms() override { return -1; }

  // The thread is there and has driven once.
  void start() {
    assert_true(progress.start());
    assert_true(becomes([this] { return driven == 1; }));
  }

  // Until it is so; a minute is for machines that are busy.
  template <class F>
  static bool becomes(F&& condition) {
    const auto until = std::chrono::steady_clock::now() + 60s;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(100us);
    }
    return true;
  }

  std::mutex mutex;
  sigset_t blocked{};  // in the thread that drives
  int completions, connections;
  std::atomic<int> driven{0}, taken{0};
  Progress progress{*this};
};

void it_drives_at_first_and_then_sleeps(void**) {
  FakeDriven d;
  assert_true(d.progress.start());
  assert_true(FakeDriven::becomes([&d] { return d.driven == 1 && d.progress.armed() == Wake::control; }));
  std::this_thread::sleep_for(30ms);
  assert_int_equal(d.driven, 1);
  assert_int_equal(d.progress.wakeups(), 0);
}

void one_event_is_one_wake_up(void**) {
  FakeDriven d;
  d.progress.start();
  for (int i = 1; i <= 20; ++i) {
    assert_true(FakeDriven::becomes([&d, i] { return d.driven == i && d.progress.armed() == Wake::control; }));
    eventfd_write(d.completions, 1);
    assert_true(FakeDriven::becomes([&d, i] { return d.driven == i + 1; }));
  }
  assert_int_equal(d.progress.wakeups(), 20);
  assert_int_equal(d.taken, 20);
}

// While a thread is inside, events are taken and nothing else; when nobody comes any more, the work is taken over.
void it_steps_aside_and_takes_over(void**) {
  FakeDriven d;
  d.start();
  d.progress.enter();
  eventfd_write(d.completions, 1);
  assert_true(FakeDriven::becomes([&d] { return d.taken == 1; }));
  std::this_thread::sleep_for(20ms);
  assert_int_equal(d.driven, 1);
  assert_int_equal(static_cast<int>(d.progress.armed()), static_cast<int>(Wake::nothing));
  d.progress.leave();
  assert_true(FakeDriven::becomes([&d] { return d.driven == 2 && d.progress.armed() == Wake::control; }));
  assert_int_equal(d.progress.takeovers(), 1);
}

// Calls that find something to do without the adapter are no polls of it.
void visits_that_do_not_poll_do_not_keep_it_aside(void**) {
  FakeDriven d;
  d.start();
  d.progress.enter();
  eventfd_write(d.completions, 1);
  assert_true(FakeDriven::becomes([&d] { return d.taken == 1; }));
  d.progress.leave();
  assert_true(FakeDriven::becomes([&d] {
    d.progress.enter();
    d.progress.leave();
    return d.driven == 2;
  }));
  assert_int_equal(d.progress.takeovers(), 1);
}

void connections_are_looked_after_by_whoever(void**) {
  FakeDriven d;
  d.start();
  d.progress.enter();
  eventfd_write(d.connections, 1);
  assert_true(FakeDriven::becomes([&d] { return d.driven == 2; }));
  d.progress.leave();
}

// What a copy from or to memory that is gone raises must come through; all others are the application's.
void faults_are_not_blocked(void**) {
  FakeDriven d;
  d.start();
  const std::lock_guard lock(d.mutex);
  for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) assert_false(sigismember(&d.blocked, s));
  for (const int s : {SIGTERM, SIGINT, SIGALRM, SIGUSR1, SIGCHLD, SIGPROF}) assert_true(sigismember(&d.blocked, s));
}

void without_a_thread_it_says_so(void**) {
  const sigset_t before = ewarp::test::mask_now();
  FakeDriven d;
  {
    const ewarp::test::NoThreads none;
    assert_false(d.progress.start());
  }
  assert_false(d.progress.running());
  assert_true(ewarp::test::same(ewarp::test::mask_now(), before));
  d.start();  // the next attempt is as good as the first
}

// The affinity of the thread that has this name; nothing while it does not run.
std::optional<cpu_set_t> cpus_of(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string comm;
    std::getline(std::ifstream(task.path() / "comm"), comm);
    cpu_set_t set;
    if (comm == name && sched_getaffinity(std::stoi(task.path().filename()), sizeof set, &set) == 0) return set;
  }
  return std::nullopt;
}

// Where the application computes it does not run, as long as there is another CPU.
void it_keeps_off_the_applications_cpu(void**) {
  cpu_set_t all;
  sched_getaffinity(0, sizeof all, &all);
  FakeDriven d;
  d.progress.start();
  int driven = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all)) continue;
    assert_true(FakeDriven::becomes([&] { return d.driven > driven && d.progress.armed() == Wake::control; }));
    driven = d.driven;
    cpu_set_t one, rest = all;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CPU_CLR(cpu, &rest);
    sched_setaffinity(0, sizeof one, &one);
    d.progress.enter();
    d.progress.leave();
    eventfd_write(d.completions, 1);
    const cpu_set_t want = CPU_COUNT(&rest) > 0 ? rest : all;
    assert_true(FakeDriven::becomes([&] {
      const auto got = cpus_of("channel");
      return got && CPU_EQUAL(&*got, &want);
    }));
  }
  sched_setaffinity(0, sizeof all, &all);
}

void it_ends_when_it_is_told(void**) {
  FakeDriven d;
  d.progress.start();
  d.progress.stop();
  assert_false(d.progress.running());
  d.progress.stop();
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(it_drives_at_first_and_then_sleeps),
      cmocka_unit_test(one_event_is_one_wake_up),
      cmocka_unit_test(it_steps_aside_and_takes_over),
      cmocka_unit_test(visits_that_do_not_poll_do_not_keep_it_aside),
      cmocka_unit_test(connections_are_looked_after_by_whoever),
      cmocka_unit_test(it_keeps_off_the_applications_cpu),
      cmocka_unit_test(it_ends_when_it_is_told),
      cmocka_unit_test(faults_are_not_blocked),
      cmocka_unit_test(without_a_thread_it_says_so),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
