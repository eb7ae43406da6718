// When the progress thread works and when it leaves others alone, with event descriptors in the adapter's place.
#include "mpi_shim/channel/progress.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "tests/channel/scene.h"

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
  d.progress.start();
  assert_true(FakeDriven::becomes([&d] { return d.driven == 1; }));
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

void connections_are_looked_after_by_whoever(void**) {
  FakeDriven d;
  d.progress.start();
  assert_true(FakeDriven::becomes([&d] { return d.driven == 1; }));
  d.progress.enter();
  eventfd_write(d.connections, 1);
  assert_true(FakeDriven::becomes([&d] { return d.driven == 2; }));
  d.progress.leave();
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
      cmocka_unit_test(connections_are_looked_after_by_whoever),
      cmocka_unit_test(it_ends_when_it_is_told),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
