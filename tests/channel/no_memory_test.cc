// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Allocations that fail one after the other, over an adapter in the place of libibverbs's functions: what is refused
// leaves nothing behind, what ends is told, and no buffer that the program has back is looked at.
#include <cstdlib>
#include <limits>
#include <new>
#include <set>

#include "mpi_shim/channel/verbs/buffer_pool.h"
#include "mpi_shim/channel/verbs/reasons.h"
#include "mpi_shim/channel/verbs/records.h"
#include "mpi_shim/channel/verbs/registration_cache.h"
#include "tests/channel/pinning_adapter.h"
#include "tests/channel/scene.h"

namespace {

constexpr int kAll = std::numeric_limits<int>::max();
constexpr std::size_t kAnySize = std::numeric_limits<std::size_t>::max();
// Of this thread.
thread_local int allocations_left = kAll;
thread_local std::size_t largest_block = kAnySize;

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t n) {
  if (n > largest_block || (allocations_left != kAll && --allocations_left < 0)) throw std::bad_alloc();
  void* p = std::malloc(n > 0 ? n : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
// Sanitizers bring forms of their own, whose memory is not for free().
[[gnu::noinline]] void* operator new[](std::size_t n) {
  return operator new(n);
}
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  try {
    return operator new(n);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return operator new(n, std::nothrow);
}
[[gnu::noinline]] void operator delete[](void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept {
  std::free(p);
}

using namespace ewarp::channel;
using namespace ewarp::channel::test;

namespace {

// f() with memory for so many allocations. True: it threw std::bad_alloc.
template <class F>
bool lacks_memory(int allocations, F f) {
  allocations_left = allocations;
  bool threw = false;
  try {
    f();
  } catch (const std::bad_alloc&) {
    threw = true;
  }
  allocations_left = kAll;
  return threw;
}

constexpr int kMore = 20;  // allocations than any of these things needs

void a_pool_without_memory_is_as_before(void**) {
  PinningAdapter::counts_only = true;
  int refused = 0;
  for (int allocations = 0; allocations < kMore; ++allocations) {
    BufferPool pool(nullptr, 100, 4);
    BufferPool::Buffer first;
    assert_false(lacks_memory(allocations, [&] { first = pool.take(); }));
    refused += first.data == nullptr ? 1 : 0;
    assert_int_equal(PinningAdapter::regions(), first.data == nullptr ? 0 : 1);
    std::set<std::byte*> all;
    if (first.data != nullptr) all.insert(first.data);
    for (int i = 0; i < 6; ++i) {
      const BufferPool::Buffer more = pool.take();
      assert_non_null(more.data);
      std::fill_n(more.data, 100, std::byte{1});  // it is there
      assert_true(all.insert(more.data).second);
    }
    // What is given back needs no memory.
    assert_false(lacks_memory(0, [&] {
      for (std::byte* data : all) pool.give({.data = data, .lkey = 0});
    }));
  }
  assert_true(refused >= 3);
  assert_int_equal(PinningAdapter::regions(), 0);
}

void records_without_memory_are_as_before(void**) {
  int refused = 0;
  for (int allocations = 0; allocations < kMore; ++allocations) {
    Records records;
    std::vector<std::uint32_t> ids;
    ids.reserve(100);
    const auto put = [&] {
      ids.push_back(records.next());
      records.put(ids.back(), {.serial = 1, .loan = {}});
    };
    while (ids.size() < 100 && !lacks_memory(allocations, put)) {
    }
    refused += ids.size() < 100 ? 1 : 0;
    while (ids.size() < 100) put();
    assert_int_equal(std::set(ids.begin(), ids.end()).size(), 100);
    assert_false(lacks_memory(0, [&] {
      for (const std::uint32_t id : ids) records.take(id);
    }));
  }
  assert_true(refused > 0);
}

struct NoMonitor final : MemoryMonitor {
  bool watch(const Range&) override { return true; }
  bool settled() override { return true; }
  const ChangeLog& changes() const override { return log; }
  double settled_ns() const override { return 0; }
  ChangeLog log;
};

void a_cache_without_memory_registers_nothing(void**) {
  PinningAdapter::counts_only = true;
  NoMonitor monitor;
  Counters counters;
  const Bytes memory(100);
  int refused = 0;
  for (int allocations = 0; allocations < kMore; ++allocations) {
    RegistrationCache cache(nullptr, 8, &monitor, counters);
    RegistrationCache::Region* region = nullptr;
    lacks_memory(allocations, [&] { region = cache.take(memory, 0, RegistrationCache::Stay::if_it_may); });
    assert_int_equal(PinningAdapter::regions(), region == nullptr ? 0 : 1);
    assert_int_equal(cache.size(), PinningAdapter::regions());
    refused += region == nullptr ? 1 : 0;
    if (region == nullptr) region = cache.take(memory, 0, RegistrationCache::Stay::if_it_may);
    assert_false(lacks_memory(0, [&] { cache.give(*region); }));
    assert_int_equal(PinningAdapter::regions(), 1);
  }
  assert_true(refused >= 2);
}

// They are noted, and told to people, where a connection ends for want of memory.
void a_reason_needs_no_memory(void**) {
  const Address own = *Address::parse("192.0.2.7:4791");
  rdma_cm_event event{};
  event.event = RDMA_CM_EVENT_REJECTED;
  std::string texts[6];
  assert_false(lacks_memory(0, [&] {
    texts[0] = reason::of("a text that is longer than a string has room for");
    texts[1] = reason::of_version(1);
    texts[2] = reason::of_mismatch({}, {});
    texts[3] = reason::of_stranger(own);
    texts[4] = reason::of_event(event);
    texts[5] = reason::of_silence(1, "");
  }));
  for (const std::string& text : texts) assert_string_equal(text.c_str(), "no memory");
  assert_string_equal(reason::of("a text that is longer than a string has room for").c_str(),
                      "a text that is longer than a string has room for");
}

Tuning with_long_messages() {
  Tuning t;
  t.eager_threshold = t.eager_piece = 8192;
  return t;
}

constexpr std::size_t kLong = 5000, kShort = 1000;

// There is no memory for a copy while the connection comes to be: the message goes out of the program's buffer.
void a_send_waits_where_it_cannot_be_copied(void**) {
  Scene s(with_long_messages());
  Bytes data = pattern(kS, 7, kLong), got(kLong);
  largest_block = kShort;
  const Request sent = s.net[kS].send(kR, 1, data);
  largest_block = kAnySize;
  assert_false(s.net[kS].done(sent));
  const Request received = s.net[kR].receive(kS, 1, 0, got);
  s.net.run();
  assert_true(s.net[kS].test(sent)->error == Error::none);
  assert_true(s.net[kR].test(received)->error == Error::none);
  assert_true(got == data);
}

// The program has its buffer back: what is in it then is not the message.
void an_injected_message_that_cannot_be_copied_ends_its_connection(void**) {
  Scene s(with_long_messages());
  Bytes data = pattern(kS, 7, kLong), got(kLong);
  largest_block = kShort;
  const Request sent = s.net[kS].send(kR, 1, data, {.inject = true});
  largest_block = kAnySize;
  data = pattern(kS, 8, kLong);
  const Request received = s.net[kR].receive(kS, 1, 0, got);
  s.net.run();
  assert_int_equal(s.net.failures.size(), 1);
  assert_true(s.net[kS].test(sent)->error == Error::peer_down);
  assert_true(s.net[kR].test(received)->error == Error::peer_down);
  assert_true(got == Bytes(kLong));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_pool_without_memory_is_as_before),
      cmocka_unit_test(records_without_memory_are_as_before),
      cmocka_unit_test(a_cache_without_memory_registers_nothing),
      cmocka_unit_test(a_reason_needs_no_memory),
      cmocka_unit_test(a_send_waits_where_it_cannot_be_copied),
      cmocka_unit_test(an_injected_message_that_cannot_be_copied_ends_its_connection),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
