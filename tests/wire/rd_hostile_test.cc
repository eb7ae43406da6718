// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A peer that breaks the rules of DDP and RDMAP behind a good CRC and the right tag. What leaves no doubt about the
// stream is reported and only that message fails; anything else ends the association, and what was begun in it. Nothing
// is placed in either case.
#include <algorithm>

#include "tests/wire/rd_hosts.h"
#include "tests/wire/rd_intruder.h"

using namespace ewarp;
using namespace ewarp::llp::rd;
using rdmap::Opcode;
using rdmap::Operation;
using rdmap::Status;
using wire::DatagramRequest;
using wire::tagged_segment;
using wire::untagged_segment;
using Bytes = std::vector<std::byte>;

namespace {

constexpr std::uint32_t kGood = 0x501;
constexpr std::uint8_t kSend = rdmap::control(Opcode::send), kWrite = rdmap::control(Opcode::write),
                       kResponse = rdmap::control(Opcode::read_response), kRead = rdmap::control(Opcode::read_request),
                       kAtomic = rdmap::control(Opcode::atomic_request), kImmediate = rdmap::control(Opcode::immediate);

struct Scene final : Entropy {
  Scene() : endpoint(queues) {
    table.emplace(config(), endpoint, peer, *this);
    peer.table = &*table;
    queues.regions[kGood] = {Bytes(1000)};
    queues.on_receive_done = [this](unsigned, const wire::FakeReceive&, const rdmap::Received& r) {
      received.push_back(r);
    };
    peer.open(now);
  }
  static Config config() {
    Config c;
    c.ird = 2;
    return c;
  }
  std::uint32_t draw() override { return ++drawn_ * 0x1234567u; }
  void receives(unsigned n, std::size_t size = 100) {
    while (n-- > 0) queues.posted.push_back({0, {Bytes(size)}});
  }
  DatagramRequest& request(Operation op, std::size_t n) {
    DatagramRequest& r = queues.post(Intruder::kOwn >> 16, op, {Bytes(n)});
    r.remote_stag = 1;
    table->wake(now, Intruder::key(), Intruder::address().port);
    return r;
  }
  std::uint32_t sink() const {  // of the Read, or the identifier of the atomic, that was asked last
    return get_be<std::uint32_t>(peer.heard.back().segment,
                                 ddp::UntaggedHeader::kSize + (peer.heard.back().segment.size() > 60 ? 4u : 0u));
  }
  void say(Lane lane, const Bytes& segment) { peer.say(now, lane, segment); }
  bool gone() const { return table->find(Intruder::key()) == nullptr; }
  // The association has ended for this reason; all that was begun and taken is given back.
  void expect_violation() {
    assert_true(peer.reset == ResetReason::violation);
    assert_true(gone() && queues.taken.empty());
    assert_int_equal(endpoint.active(), 0);
    assert_int_equal(endpoint.counters.violations, 1);
  }
  void expect_nothing_placed() {
    for (const std::byte b : queues.regions[kGood].octets) assert_true(b == std::byte{0});
  }

  using Intruder = wire::Intruder;
  Time now = kSecond;
  Intruder peer;
  wire::DatagramQueues queues;
  rdmap::DatagramEndpoint endpoint;
  std::optional<Table> table;
  std::vector<rdmap::Received> received;

 private:
  std::uint32_t drawn_ = 0;
};

const Bytes kTen(10, std::byte{7});

Bytes read_request(std::uint32_t msn, std::uint32_t length = 10, std::uint32_t stag = kGood) {
  Bytes body(rdmap::ReadRequest::kSize);
  rdmap::ReadRequest{1, 0, length, stag, 0}.emit(std::span(body).first<rdmap::ReadRequest::kSize>());
  return untagged_segment(kRead, ddp::kQueueRequest, msn, 0, true, body);
}

// Holds: RD-17
// One REQ segment, or a few, with two receives posted.
void requests_that_end_the_association(void**) {
  const Bytes eight(8), short_read(27);
  const std::vector<std::vector<Bytes>> cases = {
      {untagged_segment(kSend, 0, 2, 0, true, kTen)},                                                 // MSN
      {untagged_segment(kSend, 0, 1, 4, true, kTen)},                                                 // MO
      {untagged_segment(kSend, 0, 1, 0, false, kTen), untagged_segment(kSend, 0, 1, 9, true, kTen)},  // a gap
      {untagged_segment(kSend, 0, 1, 0, false, kTen), tagged_segment(kWrite, kGood, 0, true, kTen)},  // in between
      {untagged_segment(kSend, 0, 1, 0, false, kTen), read_request(1)},
      {tagged_segment(kWrite, 1, 0, false), untagged_segment(kSend, 0, 1, 0, true, kTen)},
      {untagged_segment(kSend, 5, 1, 0, true, kTen)},         // no such queue
      {untagged_segment(kRead, 1, 1, 0, true, short_read)},   // not a Read Request
      {untagged_segment(kRead, 1, 1, 0, false, Bytes(28))},   // not the last segment
      {read_request(2)},                                      // MSN of queue 1
      {untagged_segment(kAtomic, 1, 1, 0, true, Bytes(51))},  // not an Atomic Request
      {untagged_segment(kImmediate, 0, 1, 0, true, kTen)},    // not 8 octets
      {untagged_segment(kImmediate, 0, 1, 0, false, eight)},  // not whole
      {tagged_segment(kResponse, 1, 0, true, kTen)},          // in the wrong lane
      {untagged_segment(rdmap::control(Opcode::terminate), 2, 1, 0, true, Bytes(4))},
      {Bytes(14, std::byte{0x41})},                   // untagged, and shorter than that
      {Bytes(30, std::byte{0x40})},                   // DDP version
      {untagged_segment(0x03, 0, 9, 0, true, kTen)},  // RDMAP version, and not its turn
  };
  for (const auto& segments : cases) {
    Scene s;
    s.receives(2);
    const DatagramRequest& begun = s.request(Operation::send, 10);
    for (const Bytes& one : segments) s.say(Lane::req, one);
    s.expect_violation();
    s.expect_nothing_placed();
    assert_true(begun.done && begun.status == Status::remote_operation);
    for (const auto& r : s.received) assert_true(r.status == Status::flushed);
  }
}

// Holds: RD-17
// The immediate beside a segment belongs to Sends, and to all segments of one.
void immediates_out_of_place(void**) {
  for (int i = 0; i < 3; ++i) {
    Scene s;
    s.receives(2);
    if (i == 0) s.peer.say(s.now, Lane::req, tagged_segment(kWrite, kGood, 0, true, kTen), 5);
    if (i == 1)
      s.peer.say(s.now, Lane::req, untagged_segment(rdmap::control(Opcode::send_invalidate), 0, 1, 0, true, {}), 5);
    if (i == 2) {
      s.peer.say(s.now, Lane::req, untagged_segment(kSend, 0, 1, 0, false, kTen), 5);
      s.peer.say(s.now, Lane::req, untagged_segment(kSend, 0, 1, 10, true, kTen), 6);
    }
    s.expect_violation();
    s.expect_nothing_placed();
  }
}

// Holds: RD-17
void more_reads_than_agreed(void**) {
  Scene s;
  for (std::uint32_t i = 1; i <= 3; ++i) s.say(Lane::req, read_request(i));  // each is answered at once
  assert_false(s.gone());
  assert_int_equal(s.peer.heard.size(), 3);
  // Without acknowledgements the congestion window fills, and answers wait.
  for (std::uint32_t i = 4; i < 200 && !s.gone(); ++i) s.say(Lane::req, read_request(i, 1000));
  s.expect_violation();
}

// Holds: RD-17
// Answers that nobody asked for, or that do not fit. The request that they pretend to answer says so.
void responses_that_do_not_fit(void**) {
  const auto of = [](Scene& s, int i) {
    const std::uint32_t sink = s.sink();
    switch (i) {
      case 0:
        return tagged_segment(kResponse, sink, 1, true, Bytes(19));  // offset
      case 1:
        return tagged_segment(kResponse, sink + 1, 0, true, Bytes(20));  // of another
      case 2:
        return tagged_segment(kResponse, sink, 0, true, Bytes(19));  // short
      case 3:
        return tagged_segment(kResponse, sink, 0, false, Bytes(20));  // no end
      case 4:
        return tagged_segment(kResponse, sink, 0, true, Bytes(21));  // long
      case 5:
        return untagged_segment(rdmap::control(Opcode::atomic_response), 3, 1, 0, true, Bytes(12));
      case 6:
        return untagged_segment(kSend, 0, 1, 0, true, kTen);  // a request
      case 7:
        return tagged_segment(kWrite, kGood, 0, true, kTen);  // a request
      default:
        return untagged_segment(rdmap::control(Opcode::terminate), 2, 1, 0, true, Bytes(4));  // without a PSN
    }
  };
  for (int i = 0; i < 9; ++i) {
    Scene s;
    s.receives(1);
    const DatagramRequest &read = s.request(Operation::read, 20), &send = s.request(Operation::send, 5);
    s.peer.heard.pop_back();
    s.say(Lane::rsp, of(s, i));
    s.expect_violation();
    s.expect_nothing_placed();
    assert_true(read.status == Status::bad_response);
    assert_true(send.done && send.status == Status::remote_operation);
  }
  Scene s;  // none was asked for
  s.say(Lane::rsp, tagged_segment(kResponse, 1, 0, true, kTen));
  s.expect_violation();
  Scene t;  // the value for another atomic
  const DatagramRequest& add = t.request(Operation::fetch_add, 8);
  t.say(Lane::rsp, untagged_segment(rdmap::control(Opcode::atomic_response), 3, 1, 0, true, Bytes(12, std::byte{9})));
  t.expect_violation();
  assert_true(add.status == Status::bad_response);
}

// What comes ahead of its turn is placed within the sink of a Read alone, at most.
void placed_ahead_within_bounds(void**) {
  Scene s;
  const DatagramRequest& read = s.request(Operation::read, 20);
  const std::uint32_t sink = s.sink();
  for (const std::uint64_t to : {std::uint64_t{15}, std::uint64_t{20}, ~std::uint64_t{0} - 3, std::uint64_t{1} << 32})
    s.peer.say(s.now, Lane::rsp, tagged_segment(kResponse, sink, to, true, kTen), {}, {}, 5 + (to & 7));
  for (const std::uint64_t to : {std::uint64_t{995}, ~std::uint64_t{0} - 3})
    s.peer.say(s.now, Lane::req, tagged_segment(kWrite, kGood, to, true, kTen), {}, {}, 5 + (to & 7));
  assert_int_equal(s.endpoint.counters.placed_ahead, 0);
  s.expect_nothing_placed();
  assert_true(read.pieces[0] == Bytes(20) && !read.done);
  s.peer.say(s.now, Lane::rsp, tagged_segment(kResponse, sink, 10, true, kTen), {}, {}, 1);
  assert_int_equal(s.endpoint.counters.placed_ahead, 1);
  s.say(Lane::rsp, tagged_segment(kResponse, sink, 0, false, kTen));
  assert_false(read.done);  // its request is not acknowledged: strange, but not for us to judge
  s.peer.acknowledge(s.now);
  assert_true(read.done && read.status == Status::success);
}

// Holds: RD-11, RD-17
// Reported, with the headers that are meant; the messages around it are taken.
void reports_name_what_was_wrong(void**) {
  struct Case {
    Bytes segment;
    Fault fault;
    bool read;
  };
  const Bytes request = read_request(1, 10, 0x999);
  Bytes odd(rdmap::AtomicRequest::kSize);
  rdmap::AtomicRequest a;
  a.op = 1;
  a.emit(std::span(odd).first<rdmap::AtomicRequest::kSize>());
  const std::vector<Case> cases = {
      {untagged_segment(0x03, 0, 2, 0, true, kTen), fault::kRdmapVersion, false},
      {untagged_segment(0x4c, 0, 2, 0, true, kTen), fault::kRdmapOpcode, false},
      {untagged_segment(rdmap::control(Opcode::send_immediate), 1, 1, 0, true, kTen), fault::kRdmapOpcode, false},
      {untagged_segment(rdmap::control(Opcode::send_immediate), 0, 2, 0, true, kTen), fault::kRdmapOpcode, false},
      {tagged_segment(kWrite, 0x999, 0, true, kTen), fault::kDdpInvalidStag, false},
      {tagged_segment(kWrite, kGood, 995, true, kTen), fault::kDdpBounds, false},
      {untagged_segment(kSend, 0, 2, 0, true, Bytes(101)), fault::kDdpTooLong, false},
      {request, fault::kRdmapInvalidStag, true},
      {untagged_segment(kAtomic, 1, 1, 0, true, odd), fault::kRdmapOpcode, false},
  };
  for (const Case& c : cases) {
    Scene s;
    s.receives(4);
    s.say(Lane::req, untagged_segment(kSend, 0, 1, 0, true, kTen));
    const std::uint32_t psn = s.peer.psn[0];
    s.say(Lane::req, c.segment);
    const bool kept = !ddp::is_tagged(c.segment) && ddp::UntaggedHeader::parse(c.segment).value().qn == 0;
    s.say(Lane::req, untagged_segment(kSend, 0, kept ? 3 : 2, 0, true, kTen));
    assert_int_equal(s.peer.heard.size(), 1);
    const auto& heard = s.peer.heard[0];
    assert_true(heard.lane == Lane::rsp && heard.error_psn == psn);
    const auto header = ddp::UntaggedHeader::parse(heard.segment).value();
    assert_true(header.qn == 2 && header.msn == 1 && header.last);
    const auto t = rdmap::Terminate::parse(Octets(heard.segment).subspan(ddp::UntaggedHeader::kSize)).value();
    assert_true(t.fault == c.fault && t.length_valid && t.segment_length == c.segment.size());
    assert_true(std::equal(t.ddp_header.begin(), t.ddp_header.end(), c.segment.begin()));
    assert_int_equal(t.rdmap_header.size(), c.read ? rdmap::ReadRequest::kSize : 0);
    s.expect_nothing_placed();
    // Nothing behind it is taken before the report has arrived.
    const std::size_t before = s.received.size();
    s.peer.acknowledge(s.now);
    s.peer.say(s.now, Lane::req, untagged_segment(kSend, 0, kept ? 4 : 3, 0, true, kTen));
    assert_true(s.received.size() == before + 2 && s.received.back().status == Status::success);
    assert_false(s.gone());
  }
}

// Segments that name memory, each with another STag.
Bytes naming(int kind, std::uint32_t stag, std::uint32_t msn, std::uint64_t to = 0) {
  Bytes body(rdmap::AtomicRequest::kSize);
  switch (kind) {
    case 0:
      return tagged_segment(kWrite, stag, to, true, kTen);
    case 1:
      return read_request(msn, to == 0 ? 10 : 2000, stag);
    case 2: {
      rdmap::AtomicRequest a;
      a.stag = stag;
      a.to = to;
      a.emit(std::span(body).first<rdmap::AtomicRequest::kSize>());
      return untagged_segment(kAtomic, ddp::kQueueRequest, msn, 0, true, body);
    }
    default:
      return untagged_segment(rdmap::control(Opcode::send_invalidate), ddp::kQueueSend, msn, 0, true, kTen, stag);
  }
}

// A key is 32 bits, so a peer may guess: a few, and the association is gone.
void guesses_end_the_association(void**) {
  for (const int kind : {0, 1, 2, 3}) {
    Scene s;
    s.receives(20);
    if (kind != 3) s.queues.regions[0x700] = {Bytes(10), false};  // of another protection domain: as good as none
    std::uint32_t guesses = 0;
    while (guesses < 10 && !s.gone()) {
      ++guesses;
      s.say(Lane::req, naming(kind, 0x700 + 8 * (guesses - 1), guesses));
      if (!s.gone()) s.peer.acknowledge(s.now);
    }
    assert_int_equal(guesses, 8);
    s.expect_violation();
    s.expect_nothing_placed();
    assert_int_equal(s.endpoint.counters.wrong_stags, 8);
    assert_int_equal(s.table->counters().violations, 1);
  }
}

// The same key over and over is no guess: requests that were on their way when it was taken back. Nor is a key that is
// good for something else.
void honest_errors_do_not(void**) {
  constexpr std::uint32_t kReadOnly = 0x502;
  for (const int kind : {0, 1, 2})
    for (const std::uint32_t stag : {0x999u, kGood, kReadOnly}) {
      if (kind == 1 && stag == kReadOnly) continue;
      Scene s;
      s.queues.regions[kReadOnly] = {Bytes(1000), true, true, false};
      for (std::uint32_t n = 1; n <= 20; ++n) s.say(Lane::req, naming(kind, stag, n, stag == kGood ? 1600 : 0));
      for (std::uint32_t n = 1; n <= 20; ++n) s.peer.acknowledge(s.now);
      assert_false(s.gone());
      assert_int_equal(s.endpoint.counters.wrong_stags, stag == 0x999 ? 1 : 0);
      assert_int_equal(s.endpoint.counters.reports_sent, 20);
    }
}

// Ahead of its turn a Write is placed without an answer: after the first wrong key nothing more is tried.
void guesses_ahead_of_their_turn(void**) {
  Scene s;
  s.peer.say(s.now, Lane::req, tagged_segment(kWrite, 0x999, 0, true, kTen), {}, {}, 5);
  for (std::uint32_t n = 6; n < 20; ++n)
    s.peer.say(s.now, Lane::req, tagged_segment(kWrite, n == 10 ? kGood : n, 0, true, kTen), {}, {}, n);
  assert_int_equal(s.endpoint.counters.placed_ahead, 0);
  assert_int_equal(s.endpoint.counters.wrong_stags, 1);
  s.expect_nothing_placed();
  assert_false(s.gone());
}

}  // namespace

// --- receives that half messages hold ---

// Several peers of one table.
struct Crowd final : Wire, Entropy {
  Crowd() : endpoint(queues), table({}, endpoint, *this, *this) {
    queues.on_receive_done = [this](unsigned, const wire::FakeReceive&, const rdmap::Received& r) {
      received.push_back(r);
    };
  }
  // network: of IPv6; 0: it has an IPv4 address.
  wire::Intruder& join(std::uint8_t host, std::uint8_t network = 0) {
    peers.push_back(std::make_unique<wire::Intruder>(host, wire::Intruder::kOwn + static_cast<unsigned>(peers.size())));
    if (network != 0) peers.back()->move_to(network, host);
    peers.back()->table = &table;
    peers.back()->open(now);
    return *peers.back();
  }
  void send(const Address& to, const Frame& frame) override {
    for (const auto& p : peers)
      if (p->own == get_be<std::uint32_t>(frame.head, kDestinationQpn)) p->send(to, frame);
  }
  std::uint32_t draw() override { return ++drawn_ * 0x1234567u; }
  // Everybody who is still there answers what is asked of it.
  void pass(Time t) {
    const Time until = now + t;
    while (table.deadline() <= until) {
      now = std::max(now, table.deadline());
      table.expire(now);
      for (const auto& p : peers)
        if (!p->reset) p->acknowledge(now);
    }
    now = until;
  }

  static constexpr std::size_t kDestinationQpn = 4;
  Time now = kSecond;
  std::vector<std::unique_ptr<wire::Intruder>> peers;
  wire::DatagramQueues queues;
  rdmap::DatagramEndpoint endpoint;
  Table table;
  std::vector<rdmap::Received> received;

 private:
  std::uint32_t drawn_ = 0;
};

const Bytes kFirst = untagged_segment(kSend, 0, 1, 0, false, kTen);
const Bytes kSecond10 = untagged_segment(kSend, 0, 1, 10, true, kTen);

// Two sources share a limit in 1 of 256 endpoints, and no peer knows in which. body: false if the other one shares it.
void in_one_of_some(bool (*body)(Crowd&)) {
  std::vector<std::unique_ptr<Crowd>> crowds;  // all at once: by their addresses it is decided
  for (int i = 0; i < 4; ++i) {
    crowds.push_back(std::make_unique<Crowd>());
    if (body(*crowds.back())) return;
  }
  assert_true(false);
}

bool one_source_leaves_receives(Crowd& c) {
  for (int i = 0; i < 8; ++i) c.queues.posted.push_back({0, {Bytes(100)}});
  for (int i = 0; i < 20; ++i) c.join(9).say(c.now, Lane::req, kFirst);
  assert_int_equal(c.queues.taken.size(), 6);
  // It is no error, and messages of one segment are served.
  for (const auto& p : c.peers) assert_false(p->reset.has_value());
  c.join(9).say(c.now, Lane::req, untagged_segment(kSend, 0, 1, 0, true, kTen));
  wire::Intruder& other = c.join(10);
  other.say(c.now, Lane::req, kFirst);
  other.say(c.now, Lane::req, kSecond10);
  if (c.received.size() == 1) return false;
  assert_int_equal(c.received.size(), 2);
  // Who was refused asks again, and is served when a message of its source has ended.
  c.queues.posted.push_back({0, {Bytes(100)}});
  c.queues.posted.push_back({0, {Bytes(100)}});
  wire::Intruder& refused = *c.peers[6];
  const auto ask_again = [&] {
    --refused.psn[0];
    refused.say(c.now, Lane::req, kFirst);
  };
  ask_again();
  assert_int_equal(c.queues.taken.size(), 6);
  c.peers[0]->say(c.now, Lane::req, kSecond10);
  assert_int_equal(c.queues.taken.size(), 5);
  c.queues.posted.push_back({0, {Bytes(100)}});
  ask_again();
  assert_int_equal(c.queues.taken.size(), 6);
  refused.say(c.now, Lane::req, kSecond10);
  assert_int_equal(c.received.size(), 4);
  for (const auto& r : c.received) assert_true(r.status == Status::success && r.length > 0);
  return true;
}

void one_source_leaves_receives_for_others(void**) {
  in_one_of_some(one_source_leaves_receives);
}

// The host part of an IPv6 address is anybody's to choose.
bool one_network_leaves_receives(Crowd& c) {
  for (int i = 0; i < 8; ++i) c.queues.posted.push_back({0, {Bytes(100)}});
  for (std::uint8_t host = 1; host <= 20; ++host) c.join(host, 1).say(c.now, Lane::req, kFirst);
  assert_int_equal(c.queues.taken.size(), 6);
  c.join(1, 2).say(c.now, Lane::req, kFirst);
  return c.queues.taken.size() == 7;
}

void one_network_leaves_receives_for_others(void**) {
  in_one_of_some(one_network_leaves_receives);
}

void the_only_receive_can_be_had(void**) {
  Crowd c;
  c.queues.posted.push_back({0, {Bytes(100)}});
  wire::Intruder& p = c.join(9);
  p.say(c.now, Lane::req, kFirst);
  p.say(c.now, Lane::req, kSecond10);
  assert_true(c.received.size() == 1 && c.received[0].status == Status::success);
}

// The peer lives, and acknowledges what it is asked.
void a_message_that_is_not_continued_ends(void**) {
  Crowd c;
  c.queues.posted.push_back({0, {Bytes(100)}});
  wire::Intruder& p = c.join(9);
  p.say(c.now, Lane::req, kFirst);
  c.pass(29 * kSecond);
  assert_false(p.reset.has_value());
  assert_int_equal(c.queues.taken.size(), 1);
  c.pass(2 * kSecond);
  assert_true(p.reset == ResetReason::violation);
  assert_true(c.queues.taken.empty() && c.received.size() == 1 && c.received[0].status == Status::flushed);
}

void a_slow_message_does_not(void**) {
  Crowd c;
  c.queues.posted.push_back({0, {Bytes(1000)}});
  wire::Intruder& p = c.join(9);
  for (std::uint32_t i = 0; i < 20; ++i) {
    p.say(c.now, Lane::req, untagged_segment(kSend, 0, 1, 10 * i, i == 19, kTen));
    c.pass(25 * kSecond);
  }
  assert_true(c.received.size() == 1 && c.received[0].status == Status::success && c.received[0].length == 200);
}

// This process was stopped, not the peer.
void a_stop_of_our_own_ends_nothing(void**) {
  Crowd c;
  c.queues.posted.push_back({0, {Bytes(100)}});
  wire::Intruder& p = c.join(9);
  p.say(c.now, Lane::req, kFirst);
  c.now += 600 * kSecond;
  c.table.expire(c.now);
  p.acknowledge(c.now);
  assert_false(p.reset.has_value());
  p.say(c.now, Lane::req, kSecond10);
  assert_true(c.received.size() == 1 && c.received[0].status == Status::success);
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(requests_that_end_the_association),
      cmocka_unit_test(immediates_out_of_place),
      cmocka_unit_test(more_reads_than_agreed),
      cmocka_unit_test(responses_that_do_not_fit),
      cmocka_unit_test(placed_ahead_within_bounds),
      cmocka_unit_test(reports_name_what_was_wrong),
      cmocka_unit_test(guesses_end_the_association),
      cmocka_unit_test(honest_errors_do_not),
      cmocka_unit_test(guesses_ahead_of_their_turn),
      cmocka_unit_test(one_source_leaves_receives_for_others),
      cmocka_unit_test(one_network_leaves_receives_for_others),
      cmocka_unit_test(the_only_receive_can_be_had),
      cmocka_unit_test(a_message_that_is_not_continued_ends),
      cmocka_unit_test(a_slow_message_does_not),
      cmocka_unit_test(a_stop_of_our_own_ends_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
