// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Calls and ends that find no memory: a call has done nothing then, an entry stays where it is, an end is told.
#include "tests/llp/no_memory.h"
#include "mpi_shim/gravel/events.h"
#include "tests/gravel/fake_net.h"

using namespace ewarp::gravel;
using namespace ewarp::gravel::test;
using ewarp::test::lacks_memory;

namespace {

constexpr Proc kC = 0, kP = 1;

template <class F>
bool lacks_wires(Node& node, F f) {
  node.no_memory = true;
  bool threw = false;
  try {
    f();
  } catch (const std::bad_alloc&) {
    threw = true;
  }
  node.no_memory = false;
  return threw;
}

struct Taken {
  Proc proc = kAnySource;
  int tag = kAnyTag;
  std::uint64_t size = 0;
  RequestId request = 0;
};

void a_call_without_memory_has_done_nothing(void**) {
  Net net(2);
  Machine &c = *net[kC], &p = *net[kP];
  Bytes in(10), out = pattern(1, 10);
  RequestId r = 0, offer = 0;
  assert_true(lacks_wires(net[kC], [&] { c.post_receive_buffer(kP, local(in), 0, &r); }));
  assert_int_equal(c.requests(), 0);
  is(c.post_receive_buffer(kP, local(in), 0, &r), Error::none);
  is(p.post_send_buffer(kC, local(out), 0, &offer), Error::none);
  net.run();
  p.look_around();
  c.look_around();
  Taken t, f;
  is(p.take_receive_buffer(&t.proc, &t.tag, &t.size, &t.request), Error::none);
  is(c.take_send_buffer(&f.proc, &f.tag, &f.size, &f.request), Error::none);
  // One that did not begin is not waited for.
  assert_true(lacks_wires(net[kP], [&] { p.put(t.request, local(out), 0); }));
  assert_true(lacks_wires(net[kC], [&] { c.get(f.request, local(in), 0); }));
  is(p.put(t.request, local(out), 0), Error::none);
  assert_true(lacks_wires(net[kP], [&] { p.send_fin(t.request); }));
  is(p.send_fin(t.request), Error::none);
  net.run();
  ends(p, t.request);
  ends(c, r);
  ends(c, f.request);
  net.run();
  ends(p, offer);
  assert_true(in == out);
  assert_int_equal(c.requests() + p.requests(), 0);
}

// What does not find memory stays in its ledger, in order.
void an_entry_without_memory_is_taken_later(void**) {
  Net net(2);
  Machine &c = *net[kC], &p = *net[kP];
  RequestId r = 0;
  for (std::uint32_t i = 0; i < kEntries; ++i) is(p.post_send_request(kC, i, 0, &r), Error::none);
  net.run();
  int lacked = 0;
  while (lacks_memory(lacked, [&] { c.look(kP); })) ++lacked;
  assert_true(lacked > 0);
  for (std::uint32_t i = 0; i < kEntries; ++i) {
    Taken t{.proc = kP};
    is(c.take_send_request(&t.proc, &t.tag, &t.size), Error::none);
    assert_int_equal(t.size, i);
  }
}

// With entries of its that were found, and others that were not.
void an_end_needs_no_memory(void**) {
  Net net(2);
  Machine &c = *net[kC], &p = *net[kP];
  Bytes in(10);
  RequestId waiting = 0, finished = 0, r = 0;
  is(c.post_receive_buffer(kP, local(in), 0, &finished), Error::none);
  is(c.post_receive_buffer(kP, local(in), 1, &waiting), Error::none);
  for (std::uint32_t i = 0; i < kEntries / 2; ++i) is(p.post_send_request(kC, i, 0, &r), Error::none);
  net.run();
  c.look_around();
  p.look_around();
  for (std::uint32_t i = 0; i < kEntries / 2; ++i) is(p.post_send_request(kC, i, 0, &r), Error::none);
  Taken t{.proc = kC, .tag = 0};
  is(p.take_receive_buffer(&t.proc, &t.tag, &t.size, &t.request), Error::none);
  is(p.send_fin(t.request), Error::none);
  net.run();
  assert_false(lacks_memory(0, [&] { c.on_gone(kP, true); }));
  assert_true(c.peer_state(kP) == Machine::PeerState::left);
  ends(c, finished);
  ends(c, waiting, Error::peer);
}

// --- what is told by another thread ---

// There is room for each event before what it tells of begins.
void an_event_needs_no_memory(void**) {
  Events events;
  constexpr std::uint64_t kMany = 1000;
  std::uint64_t begun = 0;
  for (int allocations = 0; begun < kMany; ++allocations) {
    const std::size_t expected = events.expected();
    const bool lacked = lacks_memory(allocations % 2, [&] { events.expect([] { return true; }); });
    assert_int_equal(events.expected(), expected + (lacked ? 0u : 1u));
    begun += lacked ? 0u : 1u;
  }
  std::uint64_t told = 0, handled = 0;
  for (const std::uint64_t now : {kMany / 2, kMany}) {
    assert_false(lacks_memory(0, [&] {
      for (; told < now; ++told) events.add({.label = told, .error = {}});
      events.handle_all([&](const Event& e) { handled += e.label == handled ? 1u : 0u; });
    }));
    assert_int_equal(handled, now);
  }
  assert_int_equal(events.expected(), 0);
}

// What does not begin, or throws, is not waited for; what is behind an event that fails is not lost.
void events_are_counted(void**) {
  Events events;
  assert_false(events.expect([] { return false; }));
  assert_true(lacks_memory(10, [&] { events.expect([]() -> bool { throw std::bad_alloc(); }); }));
  assert_int_equal(events.expected(), 0);
  for (std::uint64_t i = 0; i < 3; ++i)
    assert_true(events.expect([&] {
      events.add({.label = i, .error = {}});  // its end comes inside the call
      return true;
    }));
  std::vector<std::uint64_t> seen;
  const auto handle = [&seen](const Event& e) {
    seen.push_back(e.label);
    if (seen.size() == 2) throw std::bad_alloc();
  };
  assert_true(lacks_memory(100, [&] { events.handle_all(handle); }));
  assert_int_equal(events.expected(), 1);
  events.handle_all(handle);
  assert_true(seen == std::vector<std::uint64_t>({0, 1, 2}));
  assert_int_equal(events.expected(), 0);
}

// --- names and buffers ---

void what_is_given_back_needs_no_memory(void**) {
  Bytes memory(100);
  Buffers buffers;
  Requests requests;
  std::vector<std::uint32_t> slots;
  std::vector<RequestId> names;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    slots.push_back(buffers.add(MutableOctets(memory).subspan(i), 1));
    names.push_back(requests.begin(Request::Kind::offer));
  }
  assert_false(lacks_memory(0, [&] {
    for (const std::uint32_t slot : slots) buffers.remove(slot);
    for (const RequestId name : names) requests.end(name);
  }));
  assert_int_equal(requests.in_use(), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_call_without_memory_has_done_nothing),
      cmocka_unit_test(an_entry_without_memory_is_taken_later),
      cmocka_unit_test(an_end_needs_no_memory),
      cmocka_unit_test(an_event_needs_no_memory),
      cmocka_unit_test(events_are_counted),
      cmocka_unit_test(what_is_given_back_needs_no_memory),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
