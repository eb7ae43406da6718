// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Moments without memory: a call answers with an error and leaves nothing behind; the holder of an engine and the
// background thread wait.
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <new>

#include "provider/base/log.h"
#include "provider/engine/engine.h"
#include "provider/engine/shortage.h"
#include "provider/host/fds.h"
#include "tests/verbs/captured_stderr.h"
#include "tests/verbs/two_qps.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::test;

namespace {

// Of the allocations to come, so many go well, and so many after them fail.
std::atomic<int> good_ones{1 << 30}, bad_ones{0};

bool is_bad() {
  return good_ones.fetch_sub(1) <= 0 && bad_ones.fetch_sub(1) > 0;
}

void fail_after(int good, int bad) {
  bad_ones = bad;
  good_ones = good;
}
void fail_no_more() {
  fail_after(1 << 30, 0);
}

}  // namespace

namespace {

std::atomic<std::size_t> last_asked_for{0};

}  // namespace

extern "C" void* __libc_malloc(std::size_t octets);
extern "C" void* malloc(std::size_t octets) {
  last_asked_for = octets;
  if (!is_bad()) return __libc_malloc(octets);
  errno = ENOMEM;
  return nullptr;
}

namespace {

struct Large {
  char octets[300];
};
Large* volatile kept = nullptr;  // or the compiler leaves the allocation out

void allocate() {
  kept = new Large;
  delete kept;
}

// Memory that waits to be freed holds a pointer: the allocator of a program, or a sanitizer's, may have given a smaller
// block where a smaller one was asked for.
void every_block_can_wait_to_be_freed() {
  static char* volatile one = nullptr;
  for (const bool array : {false, true}) {
    one = array ? new char[1] : new char;
    assert_true(last_asked_for >= sizeof(void*));
    array ? delete[] one : delete one;
  }
}

void a_call_is_told() {
  fail_after(0, 1);
  bool told = false;
  try {
    allocate();
  } catch (const std::bad_alloc&) {
    told = true;
  }
  fail_no_more();
  assert_true(told);
}

void the_holder_waits() {
  engine().run([] {
    fail_after(0, 3);
    allocate();
    kept = new Large[2];
    delete[] kept;
    fail_no_more();
  });
  const shortage::Scope patience;
  fail_after(0, 3);
  allocate();
  fail_no_more();
}

// What it freed goes back when it lets go; it does not wait for its own memory.
void the_holder_takes_what_it_freed() {
  engine().run([] {
    Large* volatile freed = new Large;
    const void* const first = freed;
    delete freed;
    freed = new Large;
    const void* const second = freed;
    assert_ptr_not_equal(second, first);  // that one has not gone back yet
    delete freed;
    fail_after(0, 1 << 30);
    kept = new Large;
    assert_ptr_equal(kept, second);
    auto* const part = new char;  // a part will do
    assert_ptr_equal(part, first);
    fail_no_more();
    delete kept;
    delete part;
  });
  // All of it went back.
  for (int i = 0; i < 10; ++i) allocate();
}

void the_background_thread_waits() {
  assert_int_equal(engine().start(), 0);
  std::atomic<bool> done{false};
  engine().post([&] {
    fail_after(0, 3);
    allocate();
    fail_no_more();
    done = true;
  });
  while (!done) usleep(1000);
}

void a_line_is_said() {
  const CapturedStderr said;
  const std::string octets(2 * log::kLongestLine, 'x');
  fail_after(0, 1 << 30);
  log::error("{} of {}", "too much", octets);
  fail_no_more();
  log::error("{} of {}", "too much", octets);
  log::error("a line");
  assert_int_equal(said.count("etherwarp: error: {} of {}\n"), 1);
  assert_int_equal(said.count("etherwarp: error: too much of xxx"), 1);
  assert_int_equal(said.count("xxx\netherwarp: error: a line\n"), 1);  // cut
}

struct Breakable {
  std::atomic<int> breaks{0};
  void broken() { ++breaks; }
};

// Who has waited in vain is told, and the process lives.
void what_is_asked_for_may_fail() {
  const CapturedStderr said;
  const auto object = std::make_shared<Breakable>();
  const auto fails = with_engine(engine(), object, [](Breakable&) { throw std::bad_alloc(); });
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(write(ends[1], "", 1), 1);
  engine().post(fails);
  engine().add_timer(Reactor::Clock::now(), fails);
  engine().watch(ends[0], POLLIN, fails);
  while (object->breaks < 3) usleep(1000);
  std::atomic<bool> done{false};
  engine().post([&] { done = true; });
  while (!done) usleep(1000);
  assert_int_equal(said.count("could not do what it was asked to: std::bad_alloc"), 3);
  close(ends[0]);
  close(ends[1]);
}

// Or what closes a descriptor after it would leave it open.
void a_watch_is_taken_back() {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  engine().watch(ends[0], POLLIN, [](std::uint32_t) {});
  fail_after(0, 3);
  engine().unwatch(ends[0]);
  fail_no_more();
  close(ends[0]);
  close(ends[1]);
}

std::ptrdiff_t open_fds() {
  DIR* folder = opendir("/proc/self/fd");
  std::ptrdiff_t n = 0;
  while (readdir(folder) != nullptr) ++n;
  closedir(folder);
  return n;
}

// Whichever of its allocations fails.
void a_channel_that_could_not_be_made_leaves_no_descriptors() {
  const std::ptrdiff_t before = open_fds();
  for (int good = 0;; ++good) {
    std::shared_ptr<EventChannel> made;
    int fd = -1, error = 0;
    fail_after(good, 1);
    try {
      made = host::open_event_channel(16, &fd, &error);
    } catch (const std::bad_alloc&) {
      error = ENOMEM;
    }
    fail_no_more();
    if (made != nullptr) {
      host::fds().remove(fd, ETHERWARP_FD_NONE);
      close(fd);
      assert_true(good > 2);
      break;
    }
    assert_int_equal(error, ENOMEM);
    assert_int_equal(open_fds(), before);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(+[](void**) { every_block_can_wait_to_be_freed(); }),
      cmocka_unit_test(+[](void**) { a_call_is_told(); }),
      cmocka_unit_test(+[](void**) { the_holder_waits(); }),
      cmocka_unit_test(+[](void**) { the_holder_takes_what_it_freed(); }),
      cmocka_unit_test(+[](void**) { the_background_thread_waits(); }),
      cmocka_unit_test(+[](void**) { a_line_is_said(); }),
      cmocka_unit_test(+[](void**) { what_is_asked_for_may_fail(); }),
      cmocka_unit_test(+[](void**) { a_watch_is_taken_back(); }),
      cmocka_unit_test(+[](void**) { a_channel_that_could_not_be_made_leaves_no_descriptors(); }),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
