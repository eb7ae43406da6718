// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/device/event_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <thread>

#include "provider/engine/reactor.h"

extern "C" {
#include <cmocka.h>
}

using namespace ewarp::verbs;

namespace {

// Remembers what was asked for; the test makes it happen.
class ManualReactor final : public Reactor {
 public:
  int start() noexcept override { return error; }
  void post(std::function<void()>) override { fail(); }
  std::uint64_t add_timer(Clock::time_point, std::function<void()>) override {
    fail();
    return 0;
  }
  void cancel_timer(std::uint64_t) override {}
  void watch(int fd, std::uint32_t, std::function<void(std::uint32_t)> on_ready) override { watches[fd] = on_ready; }
  void unwatch(int fd) override { watches.erase(fd); }
  // Everything that is watched becomes ready once.
  void fire() {
    auto now = std::move(watches);
    watches.clear();
    for (auto& [fd, on_ready] : now) on_ready(POLLOUT);
  }
  std::map<int, std::function<void(std::uint32_t)>> watches;
  int error = 0;  // of start()
} manual;

}  // namespace

namespace ewarp::verbs {
Reactor& reactor() {
  return manual;
}
}  // namespace ewarp::verbs

namespace {

using Pair = std::array<std::uint64_t, 2>;  // handle, serial number: a 16-octet record

std::shared_ptr<EventChannel> make(std::size_t record) {
  int error = 0;
  auto channel = EventChannel::create(record, &error);
  assert_non_null(channel.get());
  return channel;
}

void post(EventChannel& channel, std::uint64_t handle, std::uint64_t serial) {
  const Pair record{handle, serial};
  channel.post(std::as_bytes(std::span(record)));
}

int unread(const EventChannel& channel) {
  int n = 0;
  assert_int_equal(ioctl(channel.read_fd(), FIONREAD, &n), 0);
  return n;
}

Pair take(const EventChannel& channel) {
  Pair record{};
  assert_int_equal(read(channel.read_fd(), record.data(), sizeof record), sizeof record);
  return record;
}

void records_arrive_in_order(void**) {
  const auto channel = make(16);
  for (std::uint64_t i = 0; i < 100; ++i) post(*channel, i % 3, i);
  for (std::uint64_t i = 0; i < 100; ++i) assert_int_equal(take(*channel)[1], i);
  assert_int_equal(unread(*channel), 0);
}

void descriptors_are_high_and_not_inherited(void**) {
  const auto channel = make(8);
  assert_true(channel->read_fd() >= 256);
  assert_true((fcntl(channel->read_fd(), F_GETFD) & FD_CLOEXEC) != 0);
  assert_int_equal(fcntl(channel->read_fd(), F_GETFL) & O_NONBLOCK, 0);
}

void purge_takes_one_handle_only(void**) {
  struct Case {
    const char* name;
    std::vector<std::uint64_t> posted;
    std::uint64_t purged;
    std::vector<std::uint64_t> left;
  };
  const Case cases[] = {
      {"nothing there", {}, 1, {}},      {"not among them", {2, 3}, 1, {2, 3}},
      {"all of them", {1, 1, 1}, 1, {}}, {"first", {1, 2, 3}, 1, {2, 3}},
      {"last", {2, 3, 1}, 1, {2, 3}},    {"between", {2, 1, 3, 1, 2}, 1, {2, 3, 2}},
  };
  for (const Case& c : cases) {
    print_message("case: %s\n", c.name);
    const auto channel = make(16);
    for (const auto handle : c.posted) post(*channel, handle, 0);
    assert_int_equal(channel->purge(c.purged), c.posted.size() - c.left.size());
    for (const auto handle : c.left) assert_int_equal(take(*channel)[0], handle);
    assert_int_equal(unread(*channel), 0);
  }
}

void a_torn_record_stays_in_front(void**) {
  const auto channel = make(16);
  post(*channel, 7, 70);
  post(*channel, 8, 80);
  post(*channel, 9, 90);
  std::uint64_t half = 0;
  assert_int_equal(read(channel->read_fd(), &half, sizeof half), sizeof half);
  assert_int_equal(half, 7);
  assert_int_equal(channel->purge(8), 1);
  assert_int_equal(read(channel->read_fd(), &half, sizeof half), sizeof half);
  assert_int_equal(half, 70);
  assert_int_equal(take(*channel)[0], 9);
}

// More than a pipe holds: kept, in order, and delivered as room is made.
void overflow_loses_nothing(void**) {
  constexpr std::uint64_t kCount = 10000;  // 160 kB; a pipe has 64
  const auto channel = make(16);
  for (std::uint64_t i = 0; i < kCount; ++i) post(*channel, i % 5, i);
  assert_int_equal(manual.watches.size(), 1);
  assert_true(unread(*channel) < static_cast<int>(kCount * 16));
  for (std::uint64_t i = 0; i < kCount; ++i) {
    if (unread(*channel) == 0) manual.fire();
    assert_int_equal(take(*channel)[1], i);
  }
  manual.fire();
  assert_false(channel->flush());
  assert_int_equal(unread(*channel), 0);
  assert_int_equal(manual.watches.size(), 0);
}

// Where no thread can be started the records wait for the next one, which tries again.
void without_a_thread_records_wait(void**) {
  const auto channel = make(16);
  manual.error = EAGAIN;
  std::uint64_t posted = 0;
  while (posted < 20000) post(*channel, 7, posted++);
  assert_true(manual.watches.empty());
  manual.error = 0;
  post(*channel, 7, posted++);
  assert_int_equal(manual.watches.size(), 1);
  for (std::uint64_t i = 0; i < posted; ++i) {
    if (unread(*channel) == 0) manual.fire();
    assert_int_equal(take(*channel)[1], i);
  }
}

void purge_reaches_the_backlog(void**) {
  constexpr std::uint64_t kCount = 10000;
  const auto channel = make(16);
  for (std::uint64_t i = 0; i < kCount; ++i) post(*channel, i % 2, i);
  assert_int_equal(channel->purge(0), kCount / 2);
  for (std::uint64_t i = 1; i < kCount; i += 2) {
    if (unread(*channel) == 0) manual.fire();
    assert_int_equal(take(*channel)[1], i);
  }
  manual.fire();
  assert_int_equal(unread(*channel), 0);
}

void a_channel_that_dies_while_watched_leaves_no_watch(void**) {
  auto channel = make(16);
  for (int i = 0; i < 10000; ++i) post(*channel, 1, 1);
  assert_int_equal(manual.watches.size(), 1);
  channel.reset();
  assert_int_equal(manual.watches.size(), 0);
}

// The application's fd is closed, and its number belongs to somebody else: neither SIGPIPE nor a stray octet.
void posting_after_the_reader_left_is_harmless(void**) {
  const auto channel = make(16);
  channel->release_read_fd();
  const int number = channel->read_fd();
  close(number);
  int other[2];
  assert_int_equal(pipe(other), 0);
  assert_int_equal(dup2(other[0], number), number);
  post(*channel, 1, 1);
  post(*channel, 2, 2);
  assert_int_equal(channel->purge(1), 1);
  int n = 0;
  assert_int_equal(ioctl(number, FIONREAD, &n), 0);
  assert_int_equal(n, 0);
  for (const int fd : {number, other[0], other[1]}) close(fd);
}

// Two threads: one reads with blocking reads all there is, one purges again and again. Nobody waits for ever, every
// record of the other handle arrives once and in order.
void purging_beside_a_blocked_reader(void**) {
  constexpr std::uint64_t kCount = 2000;
  const auto channel = make(16);
  std::uint64_t expected = 0;
  bool in_order = true;
  std::uint64_t purged_seen = 0;
  std::thread reader([&] {
    while (expected < kCount) {
      Pair record{};
      if (read(channel->read_fd(), record.data(), sizeof record) != sizeof record) break;
      if (record[0] == 1)
        ++purged_seen;
      else
        in_order = in_order && record[1] == expected++;
    }
  });
  std::uint64_t purged = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    post(*channel, 1, i);
    post(*channel, 2, i);
    purged += channel->purge(1);
  }
  reader.join();
  assert_true(in_order);
  assert_int_equal(expected, kCount);
  assert_int_equal(purged + purged_seen, kCount);
}

void no_descriptors_remain(void**) {
  const int before = dup(0);
  close(before);
  for (int i = 0; i < 50; ++i) {
    const auto channel = make(8);
    const std::uint64_t handle = 5;
    channel->post(std::as_bytes(std::span(&handle, 1)));
    assert_int_equal(channel->purge(5), 1);
  }
  const auto first = make(8);
  const int fd = first->read_fd();
  assert_true(fd < 256 + 8);
  const int after = dup(0);
  close(after);
  assert_int_equal(before, after);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(records_arrive_in_order),
      cmocka_unit_test(descriptors_are_high_and_not_inherited),
      cmocka_unit_test(purge_takes_one_handle_only),
      cmocka_unit_test(a_torn_record_stays_in_front),
      cmocka_unit_test(overflow_loses_nothing),
      cmocka_unit_test(without_a_thread_records_wait),
      cmocka_unit_test(purge_reaches_the_backlog),
      cmocka_unit_test(a_channel_that_dies_while_watched_leaves_no_watch),
      cmocka_unit_test(posting_after_the_reader_left_is_harmless),
      cmocka_unit_test(purging_beside_a_blocked_reader),
      cmocka_unit_test(no_descriptors_remain),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
