// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Allocations that fail one after the other, over an adapter in the place of libibverbs's functions: what is refused
// leaves nothing behind, what ends is told, and no buffer that the program has back is looked at.
#include <new>
#include <set>

#include "mpi_shim/channel/verbs/buffer_pool.h"
#include "mpi_shim/channel/verbs/reasons.h"
#include "mpi_shim/channel/verbs/records.h"
#include "mpi_shim/channel/verbs/registration_cache.h"
#include "tests/channel/pinning_adapter.h"
#include "tests/channel/scene.h"
#include "tests/llp/no_memory.h"

using namespace ewarp::channel;
using namespace ewarp::channel::test;
using ewarp::test::kAnySize;
using ewarp::test::lacks_blocks;
using ewarp::test::lacks_memory;
using ewarp::test::largest_block;

namespace {

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

// --- calls, and what goes on by itself ---

// Of blocks for requests to the transport each of these needs some, at most 6.
using Begin = Request (*)(Machine&, Bytes&, wire::Remote);
constexpr Begin kCalls[] = {
    [](Machine& m, Bytes& data, wire::Remote) { return m.send(kR, 1, Octets(data).first(kSmall)); },
    [](Machine& m, Bytes& data, wire::Remote) {
      return m.send(kR, 1, Octets(data).first(kSmall), SendOptions{.delivered = true});
    },
    [](Machine& m, Bytes& data, wire::Remote) { return m.send(kR, 1, Octets(data).first(kMedium)); },
    [](Machine& m, Bytes& data, wire::Remote) { return m.send(kR, 1, data, true); },
    [](Machine& m, Bytes& data, wire::Remote to) { return m.put(kR, data, to); },
    [](Machine& m, Bytes& data, wire::Remote to) {
      return m.put(kR, data, to, {.delivered = true, .data = std::uint64_t{7}});
    },
    [](Machine& m, Bytes& data, wire::Remote to) {
      return m.put(kR, Octets(data).first(kSmall), to, {.inject = true});
    },
    [](Machine& m, Bytes& data, wire::Remote from) { return m.get(kR, data, from); },
    [](Machine& m, Bytes& data, wire::Remote) { return m.call(kR, Octets(data).first(kSmall), data); },
};

// With one block more each time: true when that was enough.
bool begins_with(int blocks, Begin begin) {
  Tuning t = small_tuning();
  t.eager_piece = 16;
  Scene s(t);
  s.net.longest = 300;
  Bytes data = pattern(kS, 1, kLarge), there = pattern(kR, 2, kLarge), got(kLarge);
  const Bytes before = there;
  Exposed* const window = s.net.expose(kR, there);
  Machine& m = s.net[kS];
  Request request;
  const bool lacked = lacks_blocks(sizeof(Outgoing), blocks, [&] { request = begin(m, data, window->remote); });
  if (lacked) {  // nothing is left of it, and nothing comes of it
    assert_int_equal(m.pending(), 0);
    s.net.run();
    assert_true(m.idle());
    assert_true(there == before);
    request = begin(m, data, window->remote);
  }
  s.net[kR].receive(kS, 1, 0, got);
  s.net.run();
  const auto status = m.test(request);
  assert_true(status && status->error == Error::none);
  assert_int_equal(m.pending(), 0);
  assert_true(s.net.failures.empty());
  s.net.conceal(kR, window);
  return !lacked;
}

void a_call_without_memory_has_done_nothing(void**) {
  for (const Begin begin : kCalls) {
    int blocks = 0;
    while (!begins_with(blocks, begin)) ++blocks;
    assert_in_range(blocks, 1, 7);
  }
}

void a_copy_without_a_request_is_given_back(void**) {
  Scene s;
  const Bytes data = pattern(kS, 1, kMedium);
  Machine& m = s.net[kS];
  const auto copy = m.copy_ahead(kR, data, {});
  assert_true(copy.has_value());
  assert_true(lacks_blocks(sizeof(Operation), 0, [&] { m.send(kR, 1, data, SendOptions{}, copy); }));
  assert_int_equal(m.pending(), 0);
  assert_true(m.idle());
}

// The message is out of the queue, and its sender waits.
void a_message_that_cannot_be_fetched_ends_its_connection(void**) {
  Tuning t = small_tuning();
  t.rendezvous_by_read = true;
  Scene s(t);
  s.net.longest = 100;
  auto& sent = s.send(kS, kR, 1, kLarge);
  s.net.run();
  Bytes got(kLarge);
  Request received;
  assert_false(lacks_blocks(sizeof(Outgoing), 0, [&] { received = s.net[kR].receive(kS, 1, 0, got); }));
  s.net.run();
  assert_int_equal(s.net.failures.size(), 1);
  s.ends(sent, Error::peer_down);
  const auto status = s.net[kR].test(received);
  assert_true(status && status->error == Error::peer_down);
  assert_int_equal(s.net[kR].pending(), 0);
}

// Nor can one that is thrown away, if there is no request to do it with.
void a_message_that_cannot_be_discarded_ends_its_connection(void**) {
  Scene s;
  auto& sent = s.send(kS, kR, 1, kLarge);
  s.net.run();
  Status status;
  auto message = s.net[kR].matched_probe(kS, 1, 0, &status);
  assert_non_null(message.get());
  assert_false(lacks_blocks(sizeof(Operation), 0, [&] { s.net[kR].discard(std::move(message)); }));
  s.net.run();
  assert_int_equal(s.net.failures.size(), 1);
  s.ends(sent, Error::peer_down);
}

// What a receiver owes, and credits: with the next tick, though nothing comes any more.
void a_release_waits_for_memory(void**) {
  static_assert(sizeof(Outgoing) != sizeof(Stored));
  Scene s;
  const Bytes data = pattern(kS, 1, kSmall);
  const Request sent = s.net[kS].send(kR, 1, data, {.delivered = true});
  assert_false(lacks_blocks(sizeof(Outgoing), 0, [&] { s.net.run(); }));
  assert_false(s.net[kS].done(sent));
  s.net[kR].tick();
  s.net.run();
  const auto status = s.net[kS].test(sent);
  assert_true(status && status->error == Error::none);
}

void a_cancel_without_memory_can_be_repeated(void**) {
  Scene s;
  Bytes got(kLarge);
  Machine& m = s.net[kR];
  const Request received = m.receive(kS, 1, 0, got);
  assert_true(lacks_blocks(sizeof(Outgoing), 0, [&] { m.cancel(received); }));
  m.cancel(received);
  s.net.run();
  const auto status = m.test(received);
  assert_true(status && status->error == Error::cancelled);
}

struct Item {
  std::size_t key = 0;
  Links<Item> links;
};
struct ItemKey {
  static std::size_t key(const Item& item) { return item.key; }
  static std::size_t hash(std::size_t key) { return key; }
};

void a_queue_without_memory_takes_all_the_same(void**) {
  std::vector<Item> items(1000);
  for (std::size_t i = 0; i < items.size(); ++i) items[i].key = i;
  HashedQueue<Item, &Item::links, ItemKey> queue;
  assert_false(lacks_memory(0, [&] {
    for (Item& item : items) queue.push_back(item);
  }));
  for (Item& item : items) assert_ptr_equal(queue.first(item.key), &item);
  for (Item& item : items) queue.remove(item);
  assert_int_equal(queue.size(), 0);
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
      cmocka_unit_test(a_call_without_memory_has_done_nothing),
      cmocka_unit_test(a_copy_without_a_request_is_given_back),
      cmocka_unit_test(a_message_that_cannot_be_fetched_ends_its_connection),
      cmocka_unit_test(a_message_that_cannot_be_discarded_ends_its_connection),
      cmocka_unit_test(a_release_waits_for_memory),
      cmocka_unit_test(a_cancel_without_memory_can_be_repeated),
      cmocka_unit_test(a_queue_without_memory_takes_all_the_same),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
