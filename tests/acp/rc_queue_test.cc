// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What is posted to one peer over reliable connections: order, notices that the peer has room for, and what is done
// again when a connection of accesses has broken.
#include "mpi_shim/acp/verbs/rc_queue.h"

#include <cerrno>
#include <memory>
#include <vector>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace ewarp::acp::test {
namespace {

// A queue and an adapter that ends requests when it is told.
struct Way {
  explicit Way(Lane l) : lane(l), queue(l) {}
  RcSlot& push(Operation what) {
    slots.push_back(std::make_unique<RcSlot>());
    slots.back()->post = {.what = what, .lane = lane, .id = slots.size() - 1};
    queue.push(*slots.back());
    return *slots.back();
  }
  // Ids of the posts that the adapter takes now.
  std::vector<std::uint64_t> pump() {
    std::vector<std::uint64_t> out;
    while (RcSlot* slot = queue.broken() ? nullptr : queue.next()) {
      queue.taken(RcQueue::requests_of(slot->post));
      out.push_back(slot->post.id);
    }
    return out;
  }
  // All requests of this slot end so. Whether the slot has ended.
  bool end(std::uint64_t id, int error = 0) {
    RcSlot* ended = nullptr;
    while (ended == nullptr && slots[id]->requests != 0) ended = queue.completed(*slots[id], error);
    return ended == slots[id].get();
  }

  Lane lane;
  RcQueue queue;
  std::vector<std::unique_ptr<RcSlot>> slots;
};

using Ids = std::vector<std::uint64_t>;

void everything_goes_in_order_as_far_as_the_adapter_has_room(void**) {
  Way w(Lane::channels);
  for (std::uint32_t i = 0; i < RcQueue::kDepth + 3; ++i) w.push(i % 2 == 0 ? Operation::write : Operation::publish);
  assert_int_equal(w.pump().size(), RcQueue::kDepth);
  assert_true(w.end(0) && w.end(1));
  assert_true(w.pump() == (Ids{RcQueue::kDepth, RcQueue::kDepth + 1}));
  for (std::uint32_t i = 2; i < RcQueue::kDepth + 2; ++i) assert_true(w.end(i));
  assert_true(w.pump() == Ids{RcQueue::kDepth + 2});
  assert_true(w.end(RcQueue::kDepth + 2) && w.queue.empty() && w.queue.requests() == 0);
}

void a_write_of_an_access_is_two_requests(void**) {
  Way w(Lane::accesses);
  for (std::uint32_t i = 0; i < RcQueue::kDepth; ++i) w.push(Operation::write);
  assert_int_equal(w.pump().size(), RcQueue::kDepth / 2);
  assert_null(w.queue.completed(*w.slots[0], 0));
  assert_true(w.pump().empty());  // room for one request
  assert_ptr_equal(w.queue.completed(*w.slots[0], 0), w.slots[0].get());
  assert_int_equal(w.pump().size(), 1);
}

void notices_wait_until_the_peer_has_polled(void**) {
  Way w(Lane::channels);
  for (std::uint32_t i = 0; i < RcQueue::kNotices + 1; ++i) w.push(Operation::write_notice);
  w.push(Operation::write);
  const std::uint64_t last = RcQueue::kNotices;
  std::uint64_t done = 0;
  for (Ids taken = w.pump(); !taken.empty(); taken = w.pump())
    for (const std::uint64_t id : taken) assert_true(id == done++ && w.end(id));
  assert_int_equal(done, last);
  assert_int_equal(w.slots[last]->requests, 0);
  w.queue.polled();
  assert_true(w.pump() == (Ids{last, last + 1}));
}

void a_connection_of_channels_loses_what_it_had(void**) {
  Way w(Lane::channels);
  for (int i = 0; i < 3; ++i) w.push(Operation::write_notice);
  assert_int_equal(w.pump().size(), 3);
  w.push(Operation::write);
  assert_true(w.end(0) && w.end(1, ECONNRESET) && w.queue.broken() && w.end(2, ECONNRESET));
  assert_int_equal(w.slots[1]->error, ECONNRESET);
  assert_ptr_equal(w.queue.pop(), w.slots[3].get());
  assert_null(w.queue.pop());
}

void copies_are_done_again_and_the_one_that_is_alone_is_blamed(void**) {
  Way w(Lane::accesses);
  for (int i = 0; i < 4; ++i) w.push(i % 2 == 0 ? Operation::write : Operation::read);
  assert_int_equal(w.pump().size(), 4);
  assert_true(w.end(0));
  for (const std::uint64_t id : {1, 2, 3}) assert_false(w.end(id, ECONNRESET));
  w.push(Operation::write);
  w.queue.restart();
  assert_null(w.queue.suspect());
  assert_true(w.pump() == Ids{1});  // one by one
  assert_true(w.end(1) && w.pump() == Ids{2});
  assert_false(w.end(2, ECONNRESET));
  w.queue.restart();
  assert_ptr_equal(w.queue.suspect(), w.slots[2].get());
  assert_null(w.queue.suspect());
  assert_true(w.pump() == (Ids{3, 4}) && w.end(3) && w.end(4) && w.queue.empty());
}

void who_is_named_by_the_adapter_ends_alone(void**) {
  Way w(Lane::accesses);
  for (int i = 0; i < 3; ++i) w.push(Operation::read);
  assert_int_equal(w.pump().size(), 3);
  assert_true(w.end(0) && w.end(1, EACCES));
  assert_int_equal(w.slots[1]->error, EACCES);
  assert_false(w.end(2, ECONNRESET));
  w.queue.restart();
  assert_null(w.queue.suspect());
  assert_true(w.pump() == Ids{2} && w.end(2) && w.queue.empty());
}

// A Write that the adapter has ended well, and the Read behind it that tells that the peer has not.
void a_write_that_is_not_known_to_be_placed_has_not_ended(void**) {
  Way w(Lane::accesses);
  w.push(Operation::write);
  assert_int_equal(w.pump().size(), 1);
  assert_null(w.queue.completed(*w.slots[0], 0));
  assert_null(w.queue.completed(*w.slots[0], ECONNRESET));
  w.queue.restart();
  assert_false(w.queue.empty());
  assert_ptr_equal(w.queue.suspect(), w.slots[0].get());
  assert_true(w.queue.empty());
}

void an_atomic_is_alone_and_never_done_again(void**) {
  Way w(Lane::accesses);
  w.push(Operation::write);
  w.push(Operation::add);
  w.push(Operation::swap_if);
  w.push(Operation::read);
  assert_true(w.pump() == Ids{0} && w.end(0));
  assert_true(w.pump() == Ids{1} && w.end(1));
  assert_true(w.pump() == Ids{2});
  assert_true(w.end(2, ECONNRESET) && w.slots[2]->error == ECONNRESET);
  w.queue.restart();
  assert_null(w.queue.suspect());
  assert_true(w.pump() == Ids{3} && w.end(3));
}

void what_waits_can_be_taken_out(void**) {
  Way w(Lane::accesses);
  w.push(Operation::add);
  w.push(Operation::read);
  w.push(Operation::read);
  assert_true(w.pump() == Ids{0});
  assert_ptr_equal(w.queue.pop_waiting(), w.slots[1].get());
  assert_ptr_equal(w.queue.pop_waiting(), w.slots[2].get());
  assert_null(w.queue.pop_waiting());
  w.push(Operation::read);
  assert_true(w.end(0) && w.pump() == Ids{3} && w.end(3) && w.queue.empty());
}

}  // namespace
}  // namespace ewarp::acp::test

using namespace ewarp::acp::test;

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(everything_goes_in_order_as_far_as_the_adapter_has_room),
      cmocka_unit_test(a_write_of_an_access_is_two_requests),
      cmocka_unit_test(notices_wait_until_the_peer_has_polled),
      cmocka_unit_test(a_connection_of_channels_loses_what_it_had),
      cmocka_unit_test(copies_are_done_again_and_the_one_that_is_alone_is_blamed),
      cmocka_unit_test(who_is_named_by_the_adapter_ends_alone),
      cmocka_unit_test(a_write_that_is_not_known_to_be_placed_has_not_ended),
      cmocka_unit_test(an_atomic_is_alone_and_never_done_again),
      cmocka_unit_test(what_waits_can_be_taken_out),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
