// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Errors that do not end an association (docs/protocol/reliable-datagrams.md section 9), one by one: which request they
// name, what the peer's receives say, and that everything around them goes on. Each under no loss and under much.
#include <algorithm>
#include <functional>

#include "tests/wire/rd_hosts.h"

using namespace ewarp;
using namespace ewarp::llp::rd;
using rdmap::Operation;
using rdmap::Status;
using wire::DatagramHost;
using wire::DatagramRequest;
using wire::FakeReceive;
using wire::pattern;
using wire::pieces_of;
using Bytes = std::vector<std::byte>;

namespace {

constexpr std::uint32_t kGood = 0x501, kForeign = 0x502, kClosed = 0x503, kUnmapped = 0x504, kNobodys = 0x505;
constexpr std::size_t kRoom = 8000;

// Two hosts; the first does the asking.
struct Scene {
  Scene(std::uint64_t seed, double loss, Config c = config())
      : net(seed, {}), a(net, 1, c, seed), b(net, 2, c, seed + 1) {
    rdsim::name_run("rd_errors EWARP_SEED=" + std::to_string(seed));
    net.conditions.loss = loss;
    b.queues.regions[kGood] = {pattern(5, kRoom)};
    b.queues.regions[kForeign] = {Bytes(kRoom), false};
    b.queues.regions[kClosed] = {Bytes(kRoom), true, false, false};
    b.queues.regions[kUnmapped] = {Bytes(kRoom), true, true, true, false};
    b.queues.on_receive_done = [this](unsigned, const FakeReceive& buffer, const rdmap::Received& r) {
      received.push_back(r);
      buffers.push_back(wire::joined(buffer.pieces));
    };
  }
  static Config config() {
    Config c;
    c.idle_close = 300 * kMillisecond;
    c.dead_time = 100 * kSecond;
    c.handshake_tries = 40;
    return c;
  }
  DatagramRequest& send(std::size_t n, std::uint64_t seed = 9) {
    return a.queues.post(2, Operation::send, pieces_of(pattern(seed, n)));
  }
  DatagramRequest& write(std::uint32_t stag, std::uint64_t to, std::size_t n) {
    return remote(a.queues.post(2, Operation::write, pieces_of(pattern(6, n))), stag, to);
  }
  DatagramRequest& read(std::uint32_t stag, std::uint64_t to, std::size_t n) {
    return remote(a.queues.post(2, Operation::read, pieces_of(Bytes(n))), stag, to);
  }
  DatagramRequest& add(std::uint32_t stag, std::uint64_t to) {
    DatagramRequest& r = remote(a.queues.post(2, Operation::fetch_add, {Bytes(8)}), stag, to);
    r.operand = 1;
    return r;
  }
  static DatagramRequest& remote(DatagramRequest& r, std::uint32_t stag, std::uint64_t to) {
    r.remote_stag = stag;
    r.remote_to = to;
    return r;
  }
  void go() {
    a.wake(2);
    net.run();
    for (const auto& r : a.queues.requests) assert_true(r->done);
    assert_int_equal(a.table->size() + b.table->size(), 0);
    assert_int_equal(a.endpoint->active() + b.endpoint->active(), 0);
  }
  // Nothing but an idle close has ended an association.
  void expect_one_association() const { assert_int_equal(a.table->counters().opened, 1); }

  rdsim::Network net;
  DatagramHost a, b;
  std::vector<rdmap::Received> received;
  std::vector<Bytes> buffers;
};

void expect(const DatagramRequest& r, Status status) {
  if (r.status != status) fail_msg("request %lu: %d", r.id, static_cast<int>(r.status));
}

void under_any_loss(const std::function<void(std::uint64_t seed, double loss)>& what) {
  what(1, 0);
  for (std::uint64_t seed = 2; seed < 30; ++seed) what(seed, 0.25);
}

// A request that fails among others that do not; what the peer sees is two good Sends around it.
void alone(const std::function<DatagramRequest&(Scene&)>& wrong, Status status) {
  under_any_loss([&](std::uint64_t seed, double loss) {
    Scene s(seed, loss);
    for (int i = 0; i < 4; ++i) s.b.post_receive(100);
    const DatagramRequest& before = s.send(50, 1);
    const DatagramRequest& bad = wrong(s);
    const DatagramRequest& after = s.send(60, 2);
    const DatagramRequest& read = s.read(kGood, 0, 3000);
    bool same = false;
    s.a.queues.on_send_done = [&](DatagramRequest& r) {
      if (&r == &read) same = wire::joined(r.pieces) == Bytes(pattern(5, 3000));
    };
    s.go();
    expect(before, Status::success);
    expect(bad, status);
    expect(after, Status::success);
    expect(read, Status::success);
    assert_true(same || wrong(s).operation == Operation::write);  // a Write may have changed what was read
    assert_int_equal(s.received.size(), 2);
    assert_true(s.received[0].length == 50 && s.received[1].length == 60);
    assert_true(std::equal(s.buffers[1].begin(), s.buffers[1].begin() + 60, pattern(2, 60).begin()));
    s.expect_one_association();
  });
}

// Holds: RD-17
void writes(void**) {
  alone([](Scene& s) -> DatagramRequest& { return s.write(kNobodys, 0, 100); }, Status::remote_access);
  alone([](Scene& s) -> DatagramRequest& { return s.write(kForeign, 0, 100); }, Status::remote_access);
  alone([](Scene& s) -> DatagramRequest& { return s.write(kClosed, 0, 5000); }, Status::remote_access);
  alone([](Scene& s) -> DatagramRequest& { return s.write(kGood, kRoom - 4000, 6000); }, Status::remote_access);
  alone([](Scene& s) -> DatagramRequest& { return s.write(kGood, ~std::uint64_t{0} - 10, 100); },
        Status::remote_access);
}

// Holds: RD-17
void reads(void**) {
  alone([](Scene& s) -> DatagramRequest& { return s.read(kNobodys, 0, 100); }, Status::remote_access);
  alone([](Scene& s) -> DatagramRequest& { return s.read(kForeign, 0, 100); }, Status::remote_access);
  alone([](Scene& s) -> DatagramRequest& { return s.read(kClosed, 0, 100); }, Status::remote_access);
  alone([](Scene& s) -> DatagramRequest& { return s.read(kGood, kRoom - 99, 100); }, Status::remote_access);
  alone([](Scene& s) -> DatagramRequest& { return s.read(kUnmapped, 0, 4000); }, Status::remote_access);
}

// Holds: RD-17
void atomics(void**) {
  alone([](Scene& s) -> DatagramRequest& { return s.add(kNobodys, 0); }, Status::remote_access);
  alone([](Scene& s) -> DatagramRequest& { return s.add(kClosed, 0); }, Status::remote_access);
  alone([](Scene& s) -> DatagramRequest& { return s.add(kUnmapped, 0); }, Status::remote_access);
  alone([](Scene& s) -> DatagramRequest& { return s.add(kGood, 4004); }, Status::remote_operation);  // not aligned
}

// Our own memory: nothing of it is sent, or the answer is thrown away.
void local_faults(void**) {
  const auto broken = [](DatagramRequest& r) -> DatagramRequest& {
    r.good_for = r.operation == Operation::read || r.operation == Operation::fetch_add ? 1 : 0;
    return r;
  };
  alone([&](Scene& s) -> DatagramRequest& { return broken(s.write(kGood, 4000, 100)); }, Status::local_protection);
  alone([&](Scene& s) -> DatagramRequest& { return broken(s.send(100)); }, Status::local_protection);
  alone([&](Scene& s) -> DatagramRequest& { return broken(s.read(kGood, 0, 5000)); }, Status::local_protection);
  alone([&](Scene& s) -> DatagramRequest& { return broken(s.add(kGood, 4000)); }, Status::local_protection);
}

// The Immediate Data of a failed Write is not delivered, whether it was sent already or not.
void a_failed_write_has_no_immediate(void**) {
  for (const std::size_t n : {100u, 7000u})
    alone(
        [n](Scene& s) -> DatagramRequest& {
          DatagramRequest& r = s.write(kClosed, 0, n);
          r.immediate = true;
          return r;
        },
        Status::remote_access);
}

// Holds: RD-17
// A Send that does not fit: the receive says so, and so does the peer; whole or still being sent.
void too_long(void**) {
  for (const std::size_t n : {101u, 1500u, 40000u})
    under_any_loss([&](std::uint64_t seed, double loss) {
      Scene s(seed, loss);
      for (int i = 0; i < 4; ++i) s.b.post_receive(100);
      const DatagramRequest &first = s.send(50), &bad = s.send(n), &bad_too = s.send(n + 1), &last = s.send(100, 3);
      s.go();
      expect(first, Status::success);
      expect(bad, Status::remote_invalid);
      expect(bad_too, Status::remote_invalid);
      expect(last, Status::success);
      assert_int_equal(s.received.size(), 4);
      assert_true(s.received[1].status == Status::local_length && s.received[2].status == Status::local_length);
      assert_true(s.received[3].length == 100 && s.buffers[3] == pattern(3, 100));
      s.expect_one_association();
    });
}

// Holds: RD-17
void an_invalidation_that_fails(void**) {
  under_any_loss([](std::uint64_t seed, double loss) {
    Scene s(seed, loss);
    s.b.queues.regions[0x77] = {Bytes(10)};
    for (int i = 0; i < 3; ++i) s.b.post_receive(3000);
    std::vector<const DatagramRequest*> all;
    for (const std::uint32_t stag : {0x77u, 0x78u, 0x77u}) {  // good, not known, not known any more
      DatagramRequest& r = s.send(2000);
      r.invalidate = true;
      r.invalidate_stag = stag;
      all.push_back(&r);
    }
    s.go();
    expect(*all[0], Status::success);
    expect(*all[1], Status::remote_access);
    expect(*all[2], Status::remote_access);
    assert_true(s.received.size() == 3 && s.received[0].invalidated && s.received[0].status == Status::success);
    assert_true(s.received[1].status == Status::flushed && s.received[2].status == Status::flushed);
    s.expect_one_association();
  });
}

// Holds: RD-11, RD-17
// One bad request after the other, of every kind: each has its own status.
void nothing_but_errors(void**) {
  under_any_loss([](std::uint64_t seed, double loss) {
    Scene s(seed, loss);
    s.b.post_receive(10);
    std::vector<std::pair<const DatagramRequest*, Status>> all;
    for (int i = 0; i < 6; ++i) {
      all.emplace_back(&s.write(kClosed, 0, 3000), Status::remote_access);
      all.emplace_back(&s.read(kNobodys, 0, 10), Status::remote_access);
      all.emplace_back(&s.read(kUnmapped, 0, 10), Status::remote_access);
      all.emplace_back(&s.read(kGood, 0, 3000), Status::success);
      all.emplace_back(&s.add(kGood, 1), Status::remote_operation);
      if (i == 3) all.emplace_back(&s.send(3000), Status::remote_invalid);
    }
    s.go();
    for (const auto& [r, status] : all) expect(*r, status);
    assert_int_equal(s.b.endpoint->counters.reports_sent, 25);
    s.expect_one_association();
  });
}

// The source of a Read goes while the answer is being sent: what comes back says so, and the answers behind it come.
void a_source_revoked_in_flight(void**) {
  Scene s(1, 0);
  const DatagramRequest& r = s.read(kGood, 0, kRoom);
  DatagramRequest& w = s.read(kClosed, 0, 0);
  s.net.filter = [&](const Address& to, const rdsim::Bytes& d) {
    // With the first of the answer: everything else is still to be numbered, or comes from nowhere.
    if (to == rdsim::address_of(1) && (std::to_integer<unsigned>(d[0]) & 15) == 9) s.b.queues.regions.erase(kGood);
    return true;
  };
  s.go();
  expect(r, Status::remote_access);
  expect(w, Status::success);
  s.expect_one_association();
}

// Numbered segments cannot be taken back: where the memory of one goes that has to be repeated, the association ends.
// Its request says why, what was begun with it has an unknown end, and the rest goes to a new association.
void memory_that_goes_under_numbered_segments(void**) {
  Scene s(1, 0);
  for (int i = 0; i < 3; ++i) s.b.post_receive(50000);
  DatagramRequest& half = s.send(50000);
  half.good_for = 8;
  const DatagramRequest &second = s.send(10), &third = s.read(kGood, 0, 3000);
  s.go();
  expect(half, Status::local_protection);
  expect(second, Status::success);
  expect(third, Status::success);
  assert_true(!s.received.empty() && s.received.back().status == Status::success && s.received.back().length == 10);
  for (std::size_t i = 0; i + 1 < s.received.size(); ++i) assert_true(s.received[i].status == Status::flushed);
  assert_int_equal(s.a.table->counters().opened, 2);

  Scene t(1, 0);
  const DatagramRequest& read = t.read(kGood, 0, kRoom);
  bool lost = false;
  t.net.filter = [&](const Address& to, const rdsim::Bytes& d) {
    if (lost || to != rdsim::address_of(1) || (std::to_integer<unsigned>(d[0]) & 15) != 9) return true;
    t.net.at(t.net.now() + kMicrosecond, [&] { t.b.queues.regions.erase(kGood); });
    lost = true;
    return false;
  };
  t.go();
  expect(read, Status::remote_operation);
}

// Holds: RD-17
// A fence waits for Reads and atomics; Reads wait for each other beyond ORD.
void fences_and_ord(void**) {
  under_any_loss([](std::uint64_t seed, double loss) {
    Config c = Scene::config();
    c.ord = 2;
    Scene s(seed, loss, c);
    for (int i = 0; i < 5; ++i) s.read(kGood, 0, 2000);
    s.write(kGood, 0, 2000).fence = true;  // or the Reads would bring what it wrote
    for (int i = 0; i < 3; ++i) s.add(kGood, 4000);
    std::size_t reads = 0;
    std::uint64_t last = 0;
    std::memcpy(&last, s.b.queues.regions[kGood].octets.data() + 4000, sizeof last);
    const std::uint64_t start = last;
    s.a.queues.on_send_done = [&](DatagramRequest& r) {
      if (r.operation == Operation::read) reads += wire::joined(r.pieces) == Bytes(pattern(5, 2000));
      if (r.operation == Operation::fetch_add) assert_memory_equal(r.pieces[0].data(), &last, sizeof last), ++last;
    };
    s.go();
    assert_int_equal(reads, 5);
    assert_int_equal(last, start + 3);
    for (const auto& r : s.a.queues.requests) expect(*r, Status::success);
  });
}

// Holds: RD-8
// Without a receive for too long; endless patience is the default.
void no_receive(void**) {
  Config c = Scene::config();
  c.rnr_retry = 3;
  Scene s(1, 0, c);
  const DatagramRequest &first = s.send(10), &second = s.send(10);
  s.b.post_receive(5);
  s.go();
  expect(first, Status::remote_invalid);  // it had a receive, a small one
  expect(second, Status::no_receive);
  Scene patient(1, 0);
  const DatagramRequest& r = patient.send(10);
  patient.net.at(patient.net.now() + 60 * kSecond, [&] { patient.b.post_receive(10); });
  patient.go();
  expect(r, Status::success);
}

// Holds: RD-7
void an_unreachable_peer(void**) {
  Config c = Scene::config();
  c.handshake_tries = 5;
  Scene s(1, 0, c);
  const DatagramRequest& lost = s.a.queues.post(7, Operation::send, {Bytes(10)});
  const DatagramRequest& too = s.a.queues.post(7, Operation::read, {Bytes(10)});
  const DatagramRequest& fine = s.read(kGood, 0, 10);
  s.a.wake(7);
  s.go();
  expect(lost, Status::connection_lost);
  expect(too, Status::connection_lost);
  expect(fine, Status::success);
}

// The queue pair there is gone: what waits for it fails.
void a_refusing_peer(void**) {
  Scene s(1, 0);
  s.b.queues.admission = Admission::qp_gone;
  const DatagramRequest &one = s.send(10), &two = s.read(kGood, 0, 10);
  s.go();
  expect(one, Status::connection_lost);
  expect(two, Status::connection_lost);
}

// Holds: RD-18
// The queue pair resets in the middle of a message: begun requests there are flushed by their owner alone, ours end as
// unknown, the receive that was open is given back, and what was not begun goes to a new association.
void a_queue_pair_resets(void**) {
  Scene s(1, 0);
  s.b.post_receive(60000);
  for (int i = 0; i < 2; ++i) s.b.post_receive(100);
  const DatagramRequest &half = s.send(60000), &last = s.send(50);
  s.a.wake(2);
  while (s.b.queues.taken.empty()) s.net.run(s.net.now() + 50 * kMicrosecond);
  s.b.table->abort(s.net.now(), *s.b.table->find(s.b.key(1)), ResetReason::administrative);
  s.go();
  expect(half, Status::remote_operation);
  expect(last, Status::success);
  assert_int_equal(s.received.size(), 2);
  assert_true(s.received[0].status == Status::flushed && s.received[1].length == 50);

  Scene t(2, 0);
  t.b.post_receive(60000);
  const DatagramRequest& mine = t.b.queues.post(1, Operation::send, {Bytes(10)});
  t.send(60000);
  t.a.wake(2);
  while (t.b.queues.taken.empty()) t.net.run(t.net.now() + 50 * kMicrosecond);
  t.b.wake(1);
  t.b.queues.admission = Admission::qp_gone;
  t.b.reset();
  t.go();
  expect(mine, Status::flushed);
  assert_true(t.received.empty() && t.b.queues.posted.size() == 1);  // flushed by who owns it
  expect(*t.a.queues.requests[0], Status::remote_operation);
}

// One receive queue, many peers: several messages are open at once, each in its own receive.
void many_peers_on_one_receive_queue(void**) {
  constexpr unsigned kPeers = 40;
  constexpr std::size_t kLong = 20000;
  rdsim::Network net(3, {});
  net.conditions.loss = 0.05;
  DatagramHost hub(net, 1, Scene::config(), 1);
  std::vector<std::unique_ptr<DatagramHost>> peers;
  std::map<unsigned, unsigned> got;
  hub.queues.on_receive_done = [&](unsigned from, const FakeReceive& buffer, const rdmap::Received& r) {
    assert_true(r.status == Status::success && r.length == kLong);
    assert_true(wire::joined(buffer.pieces) == Bytes(pattern(from * 10 + got[from]++, kLong)));
    net.at(net.now(), [&] { hub.post_receive(kLong); });
  };
  for (unsigned i = 2; i < 2 + kPeers; ++i) {
    peers.push_back(std::make_unique<DatagramHost>(net, i, Scene::config(), i));
    for (unsigned k = 0; k < 3; ++k)
      peers.back()->queues.post(1, Operation::send, pieces_of(pattern(i * 10 + k, kLong)));
    peers.back()->wake(1);
  }
  for (int i = 0; i < 8; ++i) hub.post_receive(kLong);
  net.run();
  for (const auto& p : peers) {
    for (const auto& r : p->queues.requests) expect(*r, Status::success);
    assert_int_equal(got[p->number], 3);
  }
  assert_int_equal(hub.queues.most_taken, 8);
  assert_int_equal(hub.table->size(), 0);
}

// The longest message that verbs know, in this machine's memory only once: nothing is copied or counted in 31 bits.
void the_longest_message(void**) {
  Config c = Scene::config();
  c.max_seg = 65507;
  c.window = 1024;
  c.initial_octets = 4 * 1024 * 1024;
  Scene s(1, 0, c);
  constexpr std::size_t kBig = std::size_t{0x7fffffff};
  const bool full = std::getenv("EWARP_TEST_FULL") != nullptr;
  const std::size_t n = full ? kBig : 64 * 1024 * 1024;
  s.b.queues.regions[kGood].octets = Bytes(n);
  DatagramRequest& r = s.a.queues.post(2, Operation::write, {Bytes(n, std::byte{0x5a})});
  Scene::remote(r, kGood, 0);
  s.go();
  expect(r, Status::success);
  const Bytes& there = s.b.queues.regions[kGood].octets;
  assert_true(std::all_of(there.begin(), there.end(), [](std::byte b) { return b == std::byte{0x5a}; }));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(writes),
      cmocka_unit_test(reads),
      cmocka_unit_test(atomics),
      cmocka_unit_test(local_faults),
      cmocka_unit_test(a_failed_write_has_no_immediate),
      cmocka_unit_test(too_long),
      cmocka_unit_test(an_invalidation_that_fails),
      cmocka_unit_test(nothing_but_errors),
      cmocka_unit_test(a_source_revoked_in_flight),
      cmocka_unit_test(memory_that_goes_under_numbered_segments),
      cmocka_unit_test(fences_and_ord),
      cmocka_unit_test(no_receive),
      cmocka_unit_test(an_unreachable_peer),
      cmocka_unit_test(a_refusing_peer),
      cmocka_unit_test(a_queue_pair_resets),
      cmocka_unit_test(many_peers_on_one_receive_queue),
      cmocka_unit_test(the_longest_message),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
