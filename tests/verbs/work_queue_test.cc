// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The ring of work requests between a poster and the engine, of any depth, and empty in between.
#include "provider/verbs/work_queue.h"

#include <algorithm>
#include <deque>
#include <random>
#include <thread>

#include "../vectors/vectors.h"
#include "llp/mutex.h"

using namespace ewarp;
using namespace ewarp::verbs;

namespace {

struct Item {
  std::uint64_t number;
  std::uint32_t octets;
};
using Queue = WorkQueue<Item>;
constexpr std::uint32_t kSges = 2, kExtra = 40;

// Every octet of a place says whose it is.
void fill(Queue& queue, std::uint64_t position, std::uint64_t number) {
  queue.entry(position) = {number, static_cast<std::uint32_t>(number % (kExtra + 1))};
  std::memset(queue.extra(position), static_cast<int>(number % 251), kExtra);
}

bool holds(Queue& queue, std::uint64_t position, std::uint64_t number) {
  const Item& item = queue.entry(position);
  const std::byte* at = queue.extra(position);
  return item.number == number && item.octets == number % (kExtra + 1) && queue.position(item) == position &&
         std::all_of(at, at + kExtra, [&](std::byte b) { return b == static_cast<std::byte>(number % 251); });
}

void what_is_queued_stays_whatever_the_depth(void**) {
  std::mt19937 random(1);
  for (const std::uint32_t depth : {1u, 2u, 3u, 5u, 8u, 66u}) {
    Queue queue;
    assert_true(queue.create(depth, kSges, kExtra));
    assert_int_equal(queue.depth(), depth);
    std::deque<std::uint64_t> expected;
    std::uint64_t number = 0;
    for (int step = 0; step < 20'000; ++step) {
      if (random() % 2 == 0) {
        queue.rewind();
        std::uint64_t tail = queue.tail();
        for (std::uint64_t n = random() % (depth + 1 - expected.size()); n > 0; --n) {
          fill(queue, tail++, number);
          expected.push_back(number++);
        }
        queue.publish(tail);
      } else {
        for (std::size_t n = random() % (expected.size() + 1); n > 0; --n) expected.pop_front();
        queue.retire(queue.tail() - expected.size());
      }
      assert_int_equal(queue.full(), expected.size() == depth);
      for (std::size_t i = 0; i < expected.size(); ++i) assert_true(holds(queue, queue.head() + i, expected[i]));
    }
  }
}

void a_resize_moves_it(void**) {
  Queue queue;
  assert_true(queue.create(5, kSges, kExtra));
  std::uint64_t number = 0;
  for (const std::uint32_t depth : {7u, 3u, 3u, 66u, 4u}) {
    while (queue.tail() - queue.head() > 2) queue.retire(queue.head() + 1);
    const std::uint64_t first = number - (queue.tail() - queue.head());
    while (!queue.full()) {
      fill(queue, queue.tail(), number++);
      queue.publish(queue.tail() + 1);
    }
    const std::uint64_t queued = queue.tail() - queue.head();
    assert_int_equal(queue.resize(depth), queued <= depth);
    for (std::uint64_t i = 0; i < queued; ++i) assert_true(holds(queue, queue.head() + i, first + i));
  }
}

// Each a thread of its own; often it is empty, often full.
void a_poster_and_the_engine_share_it(void**) {
  constexpr std::uint64_t kRequests = 300'000;
  for (const std::uint32_t depth : {1u, 3u, 33u}) {
    Queue queue;
    assert_true(queue.create(depth, kSges, kExtra));
    bool good = true;
    std::thread engine([&] {
      for (std::uint64_t head = 0; head < kRequests;) {
        const std::uint64_t tail = queue.tail();
        if (head == tail) std::this_thread::yield();
        for (; head < tail; queue.retire(++head)) good = good && holds(queue, head, head);
      }
    });
    for (std::uint64_t tail = 0; tail < kRequests;) {
      const llp::Guard guard(queue.lock);
      queue.rewind();
      while (tail < kRequests && tail - queue.head() < depth) {
        fill(queue, tail, tail);
        ++tail;
        if (tail % 7 == 0) break;
      }
      if (tail == queue.tail()) std::this_thread::yield();
      queue.publish(tail);
    }
    engine.join();
    assert_true(good);
  }
}

// An empty one begins at its front again: a deep queue that is seldom full touches little memory.
void one_request_at_a_time_has_one_place(void**) {
  Queue queue;
  assert_true(queue.create(64, kSges, kExtra));
  const Item* place = nullptr;
  for (std::uint64_t i = 0; i < 200; ++i) {
    queue.rewind();
    fill(queue, i, i);
    queue.publish(i + 1);
    if (place == nullptr) place = &queue.entry(i);
    assert_ptr_equal(&queue.entry(i), place);
    queue.retire(i + 1);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_is_queued_stays_whatever_the_depth),
      cmocka_unit_test(a_resize_moves_it),
      cmocka_unit_test(a_poster_and_the_engine_share_it),
      cmocka_unit_test(one_request_at_a_time_has_one_place),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
