// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What strangers and peers may send to a port with a queue pair of RD: nothing is placed, little is kept, few answers
// go out, those that talk to it do not notice, and none hears what is meant for another.
#include <cerrno>
#include <random>

#include "ddp/header.h"
#include "ddp/untagged.h"
#include "llp/rd/header.h"
#include "rdmap/header.h"
#include "tests/llp/no_memory.h"
#include "tests/llp/rd_seal.h"
#include "tests/verbs/captured_stderr.h"
#include "tests/verbs/rd_full_sockets.h"
#include "tests/verbs/rd_sides.h"

namespace ewarp::test {
namespace {

using namespace llp::rd;

const stats::Reliable& page() {
  return stats::page().reliable;
}

std::vector<std::byte> open_of(std::uint32_t to, std::uint32_t from, std::uint32_t tag, std::uint32_t qkey = kQkey) {
  Open o;
  o.initial_tag = tag;
  o.qkey = qkey;
  o.isn = {1, 1};
  o.window = {64, 64};
  o.max_seg = 1472;
  return rdtest::datagram(Prefix{Type::open, 0, 0, to, from}, o);
}

// By the time it is over the port has looked at what was sent before.
void expect_traffic(RdSide& a, RdSide& b) {
  AddressHandleObject ah = a.address();
  assert_int_equal(b.receive({b.sge(0, 100)}), 0);
  a.fill(0, 100, 4);
  assert_int_equal(a.request(ah, b.qp->number(), {.sges = {a.sge(0, 100)}}), 0);
  expect_done(a, IBV_WC_SEND);
  expect_message(b, a, 100);
  assert_true(b.filled(0, 100, 4));
}

void garbage(void**) {
  RdSide a, b;
  expect_traffic(a, b);
  RawPeer peer;
  std::mt19937 random(7);
  std::memset(b.at(1000), 0x5a, 1000);
  const auto good = open_of(b.qp->number(), 0x30c350, 77);
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto bad = good;
    bad[i] ^= std::byte{1};
    peer.send(b.qp->number(), bad);
    peer.send(b.qp->number(), Octets(good).first(i));
    if (i % 20 == 0) expect_traffic(a, b);
  }
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> octets(random() % 200 + 1);
    for (std::byte& o : octets) o = static_cast<std::byte>(random());
    octets[0] = static_cast<std::byte>(0x18 | random() % 8);
    peer.send(b.qp->number(), octets);
    if (i % 100 == 0) expect_traffic(a, b);
  }
  expect_traffic(a, b);
  for (std::size_t i = 0; i < 1000; ++i) assert_int_equal(std::to_integer<int>(*b.at(1000 + i)), 0x5a);
  assert_true(page().dropped_crc > 0);
  assert_true(page().dropped_runt + page().dropped_length > 0);
}

// Holds: RD-14
// Valid segments of associations that do not exist: ten answers a second, no state.
void unknown_tags(void**) {
  RdSide a, b;
  expect_traffic(a, b);
  const std::uint64_t known = page().associations, resets = page().resets_sent;
  RawPeer peer;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    Data d;
    d.standing.tag = i * 7919 + 1;
    const Prefix prefix{Type::req, 0, 0, b.qp->number(), 0x30c350};
    peer.send(b.qp->number(), rdtest::datagram(prefix, d, std::array<std::byte, 20>{}));
    if (i % 50 == 0) expect_traffic(a, b);
  }
  expect_traffic(a, b);
  assert_int_equal(page().associations, known);
  assert_true(page().dropped_tag > 0);
  // Several seconds may pass on a busy machine, not a hundred.
  assert_in_range(page().resets_sent - resets, 1, 500);
}

// Openings that nobody means: so many are kept, the others have to prove their address; a wrong Q_Key hears nothing.
void openings(void**) {
  RdSide a, b;
  expect_traffic(a, b);
  const std::uint64_t known = page().associations;
  RawPeer silent;
  for (std::uint32_t i = 0; i < 100; ++i)
    silent.send(b.qp->number(), open_of(b.qp->number(), 0x20c350 + i, i + 1, kQkey + 1));
  expect_traffic(a, b);
  assert_int_equal(page().associations, known);
  assert_true(silent.receive(0).empty());
  RawPeer peer;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    peer.send(b.qp->number(), open_of(b.qp->number(), 0x30c350 + i, i + 1));
    if (i % 100 == 0) expect_traffic(a, b);
  }
  expect_traffic(a, b);
  assert_in_range(page().associations - known, 1, Config{}.max_embryonic);
  assert_true(page().challenges > 0);
  // One that is meant still comes in: it proves its address.
  RdSide c;
  expect_traffic(c, b);
}

// A newer peer answers the OPEN with its version: the request fails at once, and a line says why.
void a_peer_of_another_version(void**) {
  RdSide a;
  RawPeer peer;
  const CapturedStderr said;
  AddressHandleObject ah = a.address();
  const std::uint32_t qpn = 0x010000u | peer.port();
  assert_int_equal(a.request(ah, qpn, {.sges = {a.sge(0, 100)}}), 0);
  const auto octets = peer.receive(20000);
  const auto heard = parse(octets, true);
  assert_true(heard.ok() && heard.value().prefix.type == Type::open);
  const Reset no{std::get<Open>(heard.value().body).initial_tag, ResetReason::version};
  peer.send(a.qp->number(), rdtest::datagram(Prefix{Type::reset, 0, 2, a.qp->number(), qpn}, no));
  expect_done(a, IBV_WC_SEND, 1, IBV_WC_RETRY_EXC_ERR);
  assert_int_equal(said.count("speaks another version of datagrams"), 1);
}

// One that takes part in an association with `side`, whoever opens it, and then says what it likes.
class Intruder {
 public:
  struct Heard {
    std::vector<std::byte> octets;
    Datagram d;  // looks into them
  };

  explicit Intruder(const RdSide& side) : number_(side.qp->number()) {}
  std::uint32_t qpn() const { return 0x010000u | raw_.port(); }

  Heard hear(Type type) {
    for (;;) {
      Heard h = next();
      if (h.d.prefix.type == type) return h;
    }
  }
  Heard next() {
    auto octets = raw_.receive(kPatience);
    const auto parsed = parse(octets, true);
    if (!parsed.ok()) fail_msg("nothing was heard");
    return {std::move(octets), parsed.value()};
  }

  void open() {
    raw_.send(number_, open_of(number_, qpn(), kTag));
    note(hear(Type::openack));
  }
  // Its OPEN is heard; until it is answered, it sends nothing.
  void be_opened() { note(hear(Type::open)); }
  void answer() {
    Open o;
    o.destination_tag = tag_;
    o.initial_tag = kTag;
    o.qkey = kQkey;
    o.isn = {1, 1};
    o.window = {64, 64};
    o.max_seg = 1472;
    say(Type::openack, o);
  }
  // So many of its requests' segments.
  void acknowledge(std::uint32_t n) { say(Type::ack, standing(n), std::uint16_t{0}, std::array<SackWords, 2>{}); }
  // A segment of ours, so many after the first.
  std::vector<std::byte> request(std::uint32_t n, std::size_t octets) const {
    Data d;
    d.standing = standing(0);
    d.standing.psn = 1 + n;
    return rdtest::datagram(Prefix{Type::req, 0, 0, number_, qpn()}, d, std::vector<std::byte>(octets, std::byte{1}));
  }
  // The first segment of a Send that is longer; it is accepted.
  void begin_send() {
    constexpr std::size_t kHeader = ddp::UntaggedHeader::kSize;
    std::vector<std::byte> segment(kHeader + 100);
    ddp::UntaggedHeader{false, rdmap::control(rdmap::Opcode::send), 0, ddp::kQueueSend, 1, 0}.emit(
        MutableOctets(segment).first<kHeader>());
    Data d;
    d.standing = standing(0);
    d.standing.psn = 1;
    raw_.send(number_, rdtest::datagram(Prefix{Type::req, 0, 0, number_, qpn()}, d, segment));
    while (std::get<Ack>(hear(Type::ack).d.body).standing.ack[0] != 2) {
    }
  }
  void reset() { say(Type::reset, Reset{tag_, ResetReason::unspecified}); }
  void say(const std::vector<std::byte>& octets) { raw_.send(number_, octets); }
  std::uint32_t first_psn() const { return isn_[0]; }

 private:
  static constexpr std::uint32_t kTag = 0xb0b0b0b0;

  template <class... Body>
  void say(Type type, const Body&... body) {
    raw_.send(number_, rdtest::datagram(Prefix{type, 0, 0, number_, qpn()}, body...));
  }
  Standing standing(std::uint32_t acknowledged) const {
    Standing s;
    s.tag = tag_;
    s.ack = {isn_[0] + acknowledged, isn_[1]};
    s.window = {64, 64};
    return s;
  }
  void note(const Heard& h) {
    tag_ = std::get<Open>(h.d.body).initial_tag;
    isn_ = std::get<Open>(h.d.body).isn;
  }

  RawPeer raw_;
  std::uint32_t number_, tag_ = 0;
  std::array<std::uint32_t, 2> isn_{};
};

// More than is copied when a segment is made, and no more than what inline data may be.
constexpr std::uint32_t kLong = 1000;

// Another queue pair for this side, with a single slot for requests.
void one_slot(RdSide& a) {
  a.qp->destroy();
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_DRIVER;
  init.cap = {1, 1, 1, 1, kLong};
  assert_int_equal(create_rd_qp(a.pd, init, &a.cq, &a.cq, &a.qp), 0);
  a.qp->set_handle(RdSide::kHandle);
  a.go(IBV_QPS_RTS);
}

int send_filled(RdSide& a, AddressHandleObject& ah, std::uint32_t qpn, int fill, unsigned flags) {
  std::memset(a.at(0), fill, kLong);
  return a.request(ah, qpn, {.sges = {a.sge(0, kLong)}, .flags = IBV_SEND_SIGNALED | flags});
}

// A segment of a Send in one segment: behind DDP's header, this and nothing else.
void expect_filled(const Data& segment, int fill) {
  const Octets payload = segment.segment.subspan(18);
  assert_int_equal(payload.size(), kLong);
  for (const std::byte o : payload) assert_int_equal(std::to_integer<int>(o), fill);
}

// A segment waits for room, and its peer acknowledges it: the request is complete, its memory in other use. What stands
// there next is not sent in its place.
void acknowledged_before_it_was_sent(void**) {
  for (const unsigned flags : {0u, unsigned{IBV_SEND_INLINE}}) {
    RdSide a;
    one_slot(a);
    Intruder peer(a);
    AddressHandleObject ah = a.address();
    assert_int_equal(send_filled(a, ah, peer.qpn(), 1, flags), 0);
    peer.be_opened();
    {
      const FullSockets full;
      peer.answer();
      peer.acknowledge(1);
      expect_done(a, IBV_WC_SEND);
      assert_int_equal(send_filled(a, ah, peer.qpn(), 2, flags), 0);
    }
    for (std::uint32_t n = 0; n != 1;) {
      const Intruder::Heard h = peer.hear(Type::req);
      const Data& data = std::get<Data>(h.d.body);
      n = data.standing.psn - peer.first_psn();
      assert_in_range(n, 0, 1);
      expect_filled(data, n == 0 ? 1 : 2);
    }
    peer.acknowledge(2);
    expect_done(a, IBV_WC_SEND);
  }
}

// The same where the queue pair is destroyed: the program may do with its memory what it likes.
void destroyed_before_it_was_sent(void**) {
  for (const unsigned flags : {0u, unsigned{IBV_SEND_INLINE}}) {
    RdSide a;
    one_slot(a);
    Intruder peer(a);
    AddressHandleObject ah = a.address();
    assert_int_equal(send_filled(a, ah, peer.qpn(), 1, flags), 0);
    peer.be_opened();
    {
      const FullSockets full;
      peer.answer();
      while (longest_refused < kLong) poll(nullptr, 0, 1);
      one_slot(a);
      std::memset(a.at(0), 2, kLong);
    }
    for (Type type = Type::req; type != Type::reset;) {
      const Intruder::Heard h = peer.next();
      type = h.d.prefix.type;
      if (type == Type::req) expect_filled(std::get<Data>(h.d.body), 1);
    }
  }
}

// A peer begins a message and leaves. The one receive of the shared queue is then there for the others: for who stands
// in line already, and for who comes later.
void a_shared_receive_comes_back(void**) {
  const auto events = channel(16);
  Context context(any_device(), events);
  Pd pd(context);
  SharedReceiveQueue srq(pd, 1);
  ibv_srq_attr attr{1, 1, 0};
  assert_int_equal(srq.create(attr), 0);
  RdSide a;
  AddressHandleObject ah = a.address();
  for (const bool in_line : {true, false}) {
    RdSide b(&srq), c(&srq);
    ibv_sge sge = c.sge(0, 1000);
    ibv_recv_wr wr{7, nullptr, &sge, 1}, *bad = nullptr;
    assert_int_equal(srq.post(&wr, &bad), 0);
    Intruder peer(b);
    peer.open();
    peer.begin_send();
    assert_int_equal(srq.queued(), 0);
    const auto send = [&] {
      a.fill(0, 100, 5);
      assert_int_equal(a.request(ah, c.qp->number(), {.sges = {a.sge(0, 100)}}), 0);
    };
    const auto refused = page().rnr_sent.load(), resets = page().resets_received.load();
    if (in_line) {
      send();
      while (page().rnr_sent == refused) poll(nullptr, 0, 1);
    }
    peer.reset();
    while (page().resets_received == resets) poll(nullptr, 0, 1);
    if (!in_line) send();
    expect_done(a, IBV_WC_SEND);
    expect_message(c, a, 100, 7);
    assert_true(c.filled(0, 100, 5));
  }
}

// Who waited for room, and for whom others stood behind, goes away; or nobody did, since it was an error report that
// found none. The port is not full for ever.
void a_full_port_that_nobody_waits_for(void**) {
  RdSide a, b;
  expect_traffic(a, b);
  {
    DatagramSide u;
    assert_int_equal(u.qp->number() & 0xffff, a.qp->number() & 0xffff);
    AddressHandleObject ah = u.address();
    const FullSockets full;
    assert_int_equal(u.send(ah, u.qp->number(), {u.sge(0, 8)}), 0);
    while (longest_refused == 0) poll(nullptr, 0, 1);
    u.qp->destroy();
  }
  expect_traffic(a, b);
  DatagramSide u;
  assert_int_equal(u.qp->number() & 0xffff, a.qp->number() & 0xffff);
  assert_int_equal(u.receive({u.sge(0, 41)}), 0);
  std::vector<std::byte> out(64), segment(ddp::UntaggedHeader::kSize + 5);
  ddp::UntaggedHeader{true, rdmap::control(rdmap::Opcode::send), 0, ddp::kQueueSend, 1, 0}.emit(
      MutableOctets(segment).first<ddp::UntaggedHeader::kSize>());
  out.resize(llp::finish_datagram(out, llp::UdSend{kQkey, {}}.emit(out, u.qp->number(), 0x020304), segment));
  RawPeer peer;
  {
    const FullSockets full;
    peer.send(u.qp->number(), out);
    while (longest_refused == 0) poll(nullptr, 0, 1);
  }
  expect_traffic(a, b);
}

// A segment that there is no memory for is a loss; the port goes on.
void no_memory_for_a_segment(void**) {
  constexpr std::size_t kOctets = 1237;  // asked for by nothing else
  RdSide a, b;
  Intruder peer(b);
  peer.open();
  const auto ahead = peer.request(1, kOctets);
  no_memory_for = kOctets;
  peer.say(ahead);
  while (no_memory_for != 0) poll(nullptr, 0, 1);
  expect_traffic(a, b);
  peer.say(ahead);
  for (bool held = false; !held;) {
    const Intruder::Heard h = peer.hear(Type::ack);
    const SackView& sack = std::get<Ack>(h.d.body).sack[0];
    held = sack.bits() > 0 && sack.test(0);
  }
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(garbage),
      cmocka_unit_test(unknown_tags),
      cmocka_unit_test(openings),
      cmocka_unit_test(a_peer_of_another_version),
      cmocka_unit_test(acknowledged_before_it_was_sent),
      cmocka_unit_test(destroyed_before_it_was_sent),
      cmocka_unit_test(a_shared_receive_comes_back),
      cmocka_unit_test(a_full_port_that_nobody_waits_for),
      cmocka_unit_test(no_memory_for_a_segment),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
