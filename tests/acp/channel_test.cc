// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The channel's two ends as a pure machine: connecting, slots, messages, the end, and what a peer must not do.
#include <cerrno>
#include <numeric>

#include "tests/acp/scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace ewarp::acp::test {
namespace {

using Octets = std::vector<std::byte>;

Octets pattern(std::size_t n, unsigned seed) {
  Octets out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>(i * 7 + seed * 31 + (i >> 8));
  return out;
}

struct Ends : Scene {
  using Scene::Scene;
  Request& begin(End& end, Kind kind, Octets* buffer = nullptr) {
    Request* r = pool.take(kind, buffer != nullptr ? buffer->data() : nullptr, buffer != nullptr ? buffer->size() : 0);
    assert_non_null(r);
    if (kind == Kind::free) end.set_freed();
    end.push(*r);
    return *r;
  }
  void connect() {
    create_receiver();
    settle();
    assert_true(sender.state() == Sender::State::open);
    assert_true(receiver.state() == Receiver::State::open);
  }
  RequestPool pool{4096};
};

void formulas(void**) {
  for (const std::uint32_t slot : {4096u, 16384u, 65536u, 262144u, 1048576u})
    for (const std::uint32_t n : {2u, 4u, 8u}) {
      const Shape shape{slot, n, Mode::immediate};
      assert_true(Sender::block_octets(shape) <= 168 + std::size_t{n} * (slot + 16));
      assert_true(Receiver::block_octets(shape) <= 160 + std::size_t{n} * slot);
    }
}

void immediates(void**) {
  const Immediate all[] = {{Notice::slot, 0, 0}, {Notice::credit, 32767, 16383}, {Notice::closed, 1, 2}};
  for (const auto& i : all) assert_true(Immediate::parse(i.emit()) == i);
  assert_int_equal((Immediate{Notice::credit, 1, 2}.emit()), 2u << 29 | 1u << 14 | 2u);
}

void either_end_may_be_created_first(void**) {
  Ends late;
  late.settle();
  assert_true(late.sender.state() == Sender::State::asking);
  assert_int_equal(late.requests.kept(), 1);
  late.connect();
  assert_int_equal(late.requests.kept(), 0);
  assert_int_equal(late.claims, 1);
  Ends early;
  early.connect();
}

void taken_entries_are_passed_by(void**) {
  Ends e;
  for (int i = 0; i < 3; ++i) e.ring[i].owner = 9;
  e.connect();
  assert_int_equal(e.claims, 4);
}

void a_full_crb_is_asked_again_after_a_pause(void**) {
  Ends e;
  for (auto& entry : e.ring) entry.owner = 9;
  e.create_receiver();
  e.settle();
  e.now -= 1;
  assert_int_equal(e.claims, ConnectRequests::kEntries);
  e.ring[5].owner = 0;
  e.now = 3 * Sender::kFullPause;
  e.settle();
  assert_true(e.sender.state() == Sender::State::open);
  assert_int_equal(e.claims, ConnectRequests::kEntries + 6);
}

void what_a_dead_rank_claimed_is_free_again(void**) {
  Ends e;
  for (auto& entry : e.ring) entry.owner = 9 + 1;
  e.requests.forget(8);
  assert_int_equal(e.ring[0].owner, 10);
  e.requests.forget(9);
  e.connect();
}

void a_request_that_is_none(void**) {
  Ends e;
  assert_false(e.requests.take(0));   // nobody claimed it
  assert_false(e.requests.take(64));  // no entry
  e.ring[1] = claimed_by(3, 4);
  assert_false(e.requests.take(1));  // claimed by another
  e.ring[2] = claimed_by(5, 4);
  assert_true(e.requests.take(2));
  assert_int_equal(e.ring[2].owner, 0);
  e.ring[2] = claimed_by(5, 4);
  assert_false(e.requests.take(2));  // it has one here
  e.requests.forget(4);
  assert_false(e.requests.match(4).has_value());
}

void different_slots_are_refused(void**) {
  Ends e;
  e.send_shape.slot_size = 128;
  e.create_receiver();
  Octets in(4), out(4);
  Request& send = e.begin(e.sender, Kind::send, &out);
  Request& receive = e.begin(e.receiver, Kind::receive, &in);
  e.settle();
  assert_true(send.done && send.error == EINVAL);
  assert_true(receive.done && receive.error == EINVAL);
  Request& again = e.begin(e.sender, Kind::send, &out);
  e.settle();
  assert_true(again.done && again.error == EINVAL);
}

// Message of so many octets, a buffer of so many: the smaller one counts, and nothing behind it is written.
void sizes(void** state) {
  const Mode mode = *static_cast<Mode*>(*state);
  const std::size_t all[] = {0, 1, 55, 56, 57, 112, 113, 1000};
  for (const std::size_t sent : all)
    for (const std::size_t room : all) {
      Ends e({.mode = mode});
      e.create_receiver();
      Octets out = pattern(sent, 1), in(room + 8, std::byte{0xee});
      Octets last_out = pattern(8, 2), last_in(8);
      Request* r = e.pool.take(Kind::receive, in.data(), room);
      e.receiver.push(*r);
      Request& s = e.begin(e.sender, Kind::send, &out);
      e.begin(e.sender, Kind::send, &last_out);
      Request& last = e.begin(e.receiver, Kind::receive, &last_in);
      e.settle();
      const std::size_t got = std::min(sent, room);
      assert_true(s.done && r->done && r->error == 0 && r->moved == got);
      assert_memory_equal(in.data(), out.data(), got);
      for (std::size_t i = got; i < in.size(); ++i) assert_true(in[i] == std::byte{0xee});
      assert_true(last.done && last_in == last_out);
    }
}

void a_send_is_done_when_it_is_copied(void**) {
  Ends e({.send_slots = 2, .receive_slots = 8});
  e.connect();
  Octets one = pattern(56, 1), two = pattern(112, 2);
  Request& first = e.begin(e.sender, Kind::send, &one);
  Request& second = e.begin(e.sender, Kind::send, &two);
  e.look(true);
  assert_true(first.done);    // in the send buffer; nothing has moved
  assert_false(second.done);  // its second slot has no place there
  assert_int_equal(second.moved, 56);
  one.assign(56, std::byte{0});
  e.settle();
  assert_true(second.done);
  Octets in(56);
  Request& receive = e.begin(e.receiver, Kind::receive, &in);
  e.settle();
  assert_true(receive.done && in == pattern(56, 1));
}

void a_full_receive_buffer_stops_the_sender(void**) {
  Ends e({.send_slots = 16, .receive_slots = 4});
  e.connect();
  Octets out = pattern(8, 1), in(8);
  for (int i = 0; i < 6; ++i) e.begin(e.sender, Kind::send, &out);
  e.settle();
  assert_int_equal(e.puts, 4);
  for (int i = 0; i < 2; ++i) e.begin(e.receiver, Kind::receive, &in);
  e.settle();
  assert_int_equal(e.puts, 6);
  assert_int_equal(e.credits, 1);  // a batch of two
}

// Slots are counted modulo 2^32, which is not a multiple of these rings. Counts wrap after 100 slots.
void the_counts_wrap(void**) {
  for (const Mode mode : {Mode::paper, Mode::immediate})
    for (const std::uint32_t slots : {3u, 5u, 7u}) {
      Ends e({.send_slots = slots, .receive_slots = slots, .mode = mode});
      e.connect();
      for (unsigned first = 0; first < 250; first += slots) {
        std::vector<Octets> out(slots), in(slots, Octets(40));
        for (unsigned i = 0; i < slots; ++i) e.begin(e.sender, Kind::send, &(out[i] = pattern(40, first + i)));
        e.settle();  // all slots are full
        for (unsigned i = 0; i < slots; ++i) e.begin(e.receiver, Kind::receive, &in[i]);
        e.settle();
        assert_true(in == out);
      }
    }
}

// Three operations a slot against one and a half batches: what figure 8 measures.
void the_modes_differ_in_what_they_post(void**) {
  for (const Mode mode : {Mode::paper, Mode::immediate}) {
    Ends e({.mode = mode});
    e.connect();
    Octets out = pattern(8, 1), in(8);
    for (int i = 0; i < 64; ++i) {
      Request& receive = e.begin(e.receiver, Kind::receive, &in);
      e.begin(e.sender, Kind::send, &out);
      e.settle();
      assert_true(receive.done);
    }
    assert_int_equal(e.puts, 64);
    assert_int_equal(e.credits, mode == Mode::paper ? 64 : 16);
  }
}

void copied_puts_need_no_place_in_the_send_buffer(void**) {
  Ends e({.send_slots = 1, .copied = 64});
  e.connect();
  Octets out = pattern(8, 1);
  for (int i = 0; i < 8; ++i) e.begin(e.sender, Kind::send, &out);
  e.look(true);
  assert_int_equal(e.puts, 8);
}

void free_of_both_ends(void**) {
  Ends e;
  e.connect();
  Request& sender_free = e.begin(e.sender, Kind::free);
  e.settle();
  assert_true(sender_free.done && sender_free.error == 0);  // it does not wait for the receiver
  assert_false(e.sender.over());                            // its memory does
  Request& receiver_free = e.begin(e.receiver, Kind::free);
  e.settle();
  assert_true(receiver_free.done && receiver_free.error == 0);
  assert_true(e.sender.over() && e.receiver.over());
}

void free_comes_behind_what_was_sent(void**) {
  Ends e;
  Octets out = pattern(300, 1), in(300);
  e.begin(e.sender, Kind::send, &out);
  e.begin(e.sender, Kind::free);
  Request& receive = e.begin(e.receiver, Kind::receive, &in);
  Request& free = e.begin(e.receiver, Kind::free);
  e.create_receiver();
  e.settle();
  assert_true(receive.done && receive.moved == 300 && in == out);
  assert_true(free.done && e.sender.over() && e.receiver.over());
}

void messages_that_nobody_receives_are_thrown_away(void**) {
  Ends e({.receive_slots = 2});
  Octets out = pattern(300, 1);
  e.begin(e.sender, Kind::send, &out);
  e.begin(e.sender, Kind::free);
  Request& free = e.begin(e.receiver, Kind::free);
  e.create_receiver();
  e.settle();
  assert_true(free.done && free.error == 0 && e.sender.over());
}

void a_receive_behind_the_last_message_fails(void**) {
  Ends e;
  e.connect();
  e.begin(e.sender, Kind::free);
  Octets in(8);
  Request& receive = e.begin(e.receiver, Kind::receive, &in);
  e.settle();
  assert_true(receive.done && receive.error == EPIPE);
  Request& free = e.begin(e.receiver, Kind::free);
  e.settle();
  assert_true(free.done && free.error == 0 && e.sender.over() && e.receiver.over());
}

// In each state of each end.
void a_lost_peer_ends_everything(void**) {
  for (unsigned steps = 0; steps < 60; ++steps) {
    Ends e;
    std::minstd_rand random(steps);
    Octets out = pattern(500, 1), in(500);
    Request& send = e.begin(e.sender, Kind::send, &out);
    Request& receive = e.begin(e.receiver, Kind::receive, &in);
    Request& free = e.begin(e.sender, Kind::free);
    Request& other = e.begin(e.receiver, Kind::free);
    if (steps > 5) e.create_receiver();
    for (unsigned i = 0; i < steps; ++i) e.step(random);
    e.sender.lose(ECONNRESET);
    e.receiver.lose(ECONNRESET);
    e.sender.advance(e, e.now);
    e.receiver.advance(e);
    assert_true(send.done && receive.done && free.done && other.done);
    for (const Request* r : {&send, &receive, &free, &other}) assert_true(r->error == 0 || r->error == ECONNRESET);
    e.settle();  // what was posted before must do no harm
    assert_true(e.sender.over() && e.receiver.over());
  }
}

void what_arrived_before_the_loss_is_received(void**) {
  Ends e;
  e.connect();
  Octets out = pattern(8, 1), in(8);
  e.begin(e.sender, Kind::send, &out);
  e.settle();
  e.receiver.lose(ECONNRESET);
  Request& receive = e.begin(e.receiver, Kind::receive, &in);
  Request& second = e.begin(e.receiver, Kind::receive, &in);
  e.receiver.advance(e);
  assert_true(receive.done && receive.error == 0 && in == out);
  assert_true(second.done && second.error == ECONNRESET);
}

void lies_are_noticed(void**) {
  Ends e({.receive_slots = 4});
  e.connect();
  assert_false(e.sender.credited(1));
  for (int i = 0; i < 4; ++i) assert_true(e.receiver.arrived());
  assert_false(e.receiver.arrived());
  const SlotHeader header{.octets = 57, .flags = 0};
  std::memcpy(e.receiver.slot(0), &header, sizeof header);
  Octets in(100);
  Request& receive = e.begin(e.receiver, Kind::receive, &in);
  e.receiver.advance(e);
  assert_true(receive.done && receive.error == EPROTO);
  Ends p({.mode = Mode::paper});
  p.connect();
  p.receiver.words().tail = 9;
  p.receiver.look_at_tail();
  assert_true(p.receiver.state() == Receiver::State::lost);
  p.sender.words().head = 1;
  p.sender.look_at_head();
  assert_true(p.sender.state() == Sender::State::lost);
  Ends c;
  c.connect();
  c.sender.receiver_closed();
  assert_true(c.sender.state() == Sender::State::lost);
}

void handles(void**) {
  RequestPool pool(2);
  Request* a = pool.take(Kind::send, nullptr, 0);
  Request* b = pool.take(Kind::send, nullptr, 0);
  assert_null(pool.take(Kind::send, nullptr, 0));
  const std::uint64_t old = pool.handle(*a);
  assert_ptr_equal(pool.find(old), a);
  assert_ptr_equal(pool.find(pool.handle(*b)), b);
  pool.give_back(*a);
  assert_null(pool.find(old));
  assert_ptr_equal(pool.take(Kind::free, nullptr, 0), a);
  assert_null(pool.find(old));
  assert_null(pool.find(0));
  assert_null(pool.find(3));
}

Mode paper = Mode::paper, immediate = Mode::immediate;

}  // namespace
}  // namespace ewarp::acp::test

int main() {
  using namespace ewarp::acp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(formulas),
      cmocka_unit_test(immediates),
      cmocka_unit_test(either_end_may_be_created_first),
      cmocka_unit_test(taken_entries_are_passed_by),
      cmocka_unit_test(a_full_crb_is_asked_again_after_a_pause),
      cmocka_unit_test(what_a_dead_rank_claimed_is_free_again),
      cmocka_unit_test(a_request_that_is_none),
      cmocka_unit_test(different_slots_are_refused),
      cmocka_unit_test_prestate(sizes, &paper),
      cmocka_unit_test_prestate(sizes, &immediate),
      cmocka_unit_test(a_send_is_done_when_it_is_copied),
      cmocka_unit_test(a_full_receive_buffer_stops_the_sender),
      cmocka_unit_test(the_counts_wrap),
      cmocka_unit_test(the_modes_differ_in_what_they_post),
      cmocka_unit_test(copied_puts_need_no_place_in_the_send_buffer),
      cmocka_unit_test(free_of_both_ends),
      cmocka_unit_test(free_comes_behind_what_was_sent),
      cmocka_unit_test(messages_that_nobody_receives_are_thrown_away),
      cmocka_unit_test(a_receive_behind_the_last_message_fails),
      cmocka_unit_test(a_lost_peer_ends_everything),
      cmocka_unit_test(what_arrived_before_the_loss_is_received),
      cmocka_unit_test(lies_are_noticed),
      cmocka_unit_test(handles),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
