// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One table, and a scripted peer that says what it likes: each test tells a rule of the reliable-datagram sublayer as
// datagrams in and out, at given times.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llp/rd/table.h"
#include "tests/llp/rd_seal.h"
#include "tests/vectors/vectors.h"

namespace ewarp::rdscene {

using namespace ewarp::llp::rd;
using rdtest::datagram;
using rdtest::seal;
using test::Bytes;
using test::expect_octets;

inline constexpr std::uint32_t kOwnQpn = 0x1c350, kPeerQpn = 0x2c351, kQkey = 0x11111111;
inline constexpr std::uint32_t kPeerTag = 0xb0b0b0b0;
inline constexpr std::array<std::uint32_t, 2> kPeerIsn{0xfffffffe, 0x3000};

inline Address peer_address() {
  Address a;
  a.ip[15] = std::byte{9};
  a.port = 0xc351;
  return a;
}

// What the table sent, kept with its octets.
struct Heard {
  Time when;
  Bytes octets;
  Datagram d;
  Type type() const { return d.prefix.type; }
  bool has(std::uint8_t flags) const { return (d.prefix.flags & flags) == flags; }
  const Data& data() const { return std::get<Data>(d.body); }
  const Ack& ack() const { return std::get<Ack>(d.body); }
  const Open& open() const { return std::get<Open>(d.body); }
  const Close& close() const { return std::get<Close>(d.body); }
  const Reset& reset() const { return std::get<Reset>(d.body); }
  std::uint32_t psn() const { return data().standing.psn; }
};

// A tagged segment of 14 octets of header and what is behind it.
inline Bytes segment(bool last, std::size_t payload = 10, std::uint8_t fill = 1) {
  Bytes s(14 + payload, std::byte{fill});
  s[0] = static_cast<std::byte>(0x81 | (last ? 0x40 : 0));
  return s;
}
inline Bytes untagged(bool last, std::size_t payload = 10) {
  Bytes s(18 + payload, std::byte{2});
  s[0] = static_cast<std::byte>(0x01 | (last ? 0x40 : 0));
  return s;
}

class Scene final : public Upper, public Wire, public Entropy {
 public:
  struct Job {
    std::uint64_t message = 1;
    bool last = true;
    std::optional<std::uint32_t> first_msn;
    std::uint32_t payload = 100;
    std::optional<std::uint32_t> error_psn;
  };

  explicit Scene(const Config& config = {}) : config(config), table(config, *this, *this, *this) {}

  const Config config;
  Time now = 1000 * kSecond;
  std::uint32_t next_draw = 0x77000000;
  // What the layer above has to send, and says to what comes.
  std::array<std::deque<Job>, 2> jobs;
  std::function<Take(const Incoming&)> verdict = [](const Incoming&) { return Take::accepted; };
  bool can_place = false, waits = false, readable = true;
  std::uint32_t limit = 1000;
  Admission admission = Admission::welcome;
  // What it heard.
  std::vector<std::uint64_t> acknowledged_messages, reported_messages;
  struct Delivered {
    Lane lane;
    std::uint32_t psn;
    bool placed;
  };
  std::vector<Delivered> delivered;
  std::vector<std::uint32_t> placed;
  std::vector<Ended> endings;
  std::vector<Address> destinations;
  std::deque<Heard> heard;
  Table table;

  Key key() const { return {peer_address().ip, kOwnQpn, kPeerQpn, kQkey}; }
  Association& association() {
    Association* a = table.find(key());
    if (a == nullptr) fail_msg("there is no association");
    return *a;
  }
  bool gone() const { return table.find(key()) == nullptr; }

  // --- what our side is told to do ---
  void add(Lane lane, Job job) { jobs[index(lane)].push_back(job); }
  void wake() { table.wake(now, key(), peer_address().port); }
  void send(std::uint64_t message, unsigned segments = 1, std::uint32_t payload = 100) {
    for (unsigned i = 1; i <= segments; ++i) add(Lane::req, {message, i == segments, {}, payload, {}});
    wake();
  }
  // Time passes, stopping at each deadline.
  void pass(Time t) {
    const Time until = now + t;
    while (table.deadline() <= until) {
      now = std::max(now, table.deadline());
      table.expire(now);
    }
    now = until;
  }

  // --- what the peer says ---
  void say(const Bytes& octets, bool ce = false, bool more = false) {
    table.receive(now, peer_address(), octets, ce, more);
  }
  Open offer() const {
    Open o;
    o.initial_tag = kPeerTag;
    o.qkey = kQkey;
    o.isn = kPeerIsn;
    o.window = {256, 256};
    o.msn_limit = 1000;
    o.max_seg = 1472;
    o.options = option::kCredits | option::kAtomics;
    o.ird = o.ord = 4;
    return o;
  }
  template <class... Body>
  void say_as(Type type, std::uint8_t flags, std::uint8_t aux, const Body&... body) {
    say(datagram(Prefix{type, flags, aux, kOwnQpn, kPeerQpn}, body...));
  }
  void say_open(const Open& o) { say_as(Type::open, 0, 0, o); }
  void say_openack(Open o, std::uint8_t flags = 0) {
    o.destination_tag = own_tag;
    say_as(Type::openack, flags, 0, o);
  }
  Standing standing() const {
    Standing s;
    s.tag = own_tag;
    s.ack = acked;
    s.window = peer_window;
    s.msn_limit = peer_limit;
    return s;
  }
  void say_ack(std::initializer_list<std::uint32_t> sacked_req = {}, std::uint8_t flags = 0, std::uint8_t aux = 0) {
    std::array<SackWords, 2> sack;
    for (const std::uint32_t psn : sacked_req) sack[0].set(psn - acked[0] - 1);
    say_as(Type::ack, flags, aux, standing(), std::uint16_t{0}, sack);
  }
  void say_data(Lane lane, std::uint32_t psn, const Bytes& segment, std::uint8_t flags = 0, bool ce = false,
                std::optional<std::uint32_t> error_psn = {}, bool more = false) {
    Data d;
    d.standing = standing();
    d.standing.psn = psn;
    d.error_psn = error_psn;
    const Prefix p{lane == Lane::req ? Type::req : Type::rsp, flags, 0, kOwnQpn, kPeerQpn};
    say(datagram(p, d, segment), ce, more);
  }
  void say_close(std::uint8_t flags = 0) { say_as(Type::close, flags, 0, Close{own_tag, peer_next, acked, 1}); }
  void say_reset(std::uint32_t tag, ResetReason reason, std::uint8_t flags = 0) {
    say_as(Type::reset, flags, 0, Reset{tag, reason});
  }

  // What the scripted peer's datagrams say of it.
  std::uint32_t own_tag = 0;
  std::array<std::uint32_t, 2> own_isn{}, acked{}, peer_next = kPeerIsn;
  std::array<std::uint16_t, 2> peer_window{256, 256};
  std::uint32_t peer_limit = 1000;

  // We open; what is queued goes out. Everything heard until then is dropped.
  void establish(std::optional<Open> answer = {}) {
    waits = true;
    add(Lane::req, {99, true, {}, 0, {}});
    wake();
    note_open(expect(Type::open));
    say_openack(answer.value_or(offer()));
    expect(Type::req);
    ++acked[0];
    say_ack();
    waits = false;
    quiet();
    acknowledged_messages.clear();
  }
  // The peer opens.
  void be_opened() {
    say_open(offer());
    note_open(expect(Type::openack));
  }
  void note_open(const Heard& h) {
    own_tag = h.open().initial_tag;
    own_isn = acked = h.open().isn;
  }

  // --- what must have been said ---
  Heard expect(Type type) {
    if (heard.empty()) fail_msg("expected type %u, heard nothing", static_cast<unsigned>(type));
    Heard h = std::move(heard.front());
    heard.pop_front();
    if (h.type() != type)
      fail_msg("expected type %u, heard %u", static_cast<unsigned>(type), static_cast<unsigned>(h.type()));
    // The parsed views must look into the octets where they are now.
    h.d = parse(h.octets, true).value();
    return h;
  }
  void silence() {
    if (!heard.empty()) fail_msg("heard type %u", static_cast<unsigned>(heard.front().type()));
  }
  void quiet() { heard.clear(); }

 private:
  Admission admit(const Key&) override { return admission; }
  void opening(Association&) override {}
  void established(Association&) override {}
  void ended(Association&, const Ended& how) override {
    endings.push_back(how);
    if (how.why == Ending::unreachable || how.why == Ending::refused) jobs[0].clear();
    jobs[1].clear();
  }
  bool peek(Association&, Lane lane, std::optional<std::uint32_t>* first_msn) override {
    first_msn->reset();
    if (jobs[index(lane)].empty()) return false;
    *first_msn = jobs[index(lane)].front().first_msn;
    return true;
  }
  void take(Association&, Lane lane, std::uint32_t, std::size_t mulpdu, Outgoing& out) override {
    const Job job = jobs[index(lane)].front();
    jobs[index(lane)].pop_front();
    out.message = job.message;
    out.last = job.last;
    out.payload = std::min<std::uint32_t>(job.payload, static_cast<std::uint32_t>(mulpdu) - 14);
    out.error_psn = job.error_psn;
    const Bytes head = segment(job.last, 0);
    std::copy(head.begin(), head.end(), out.head.begin());
    out.head_size = 14;
  }
  int memory(Association&, Lane, const Outgoing& s, std::span<llp::Extent> out) override {
    if (!readable) return -1;
    memory_.resize(65536, std::byte{0x5a});
    out[0] = {memory_.data(), s.payload, nullptr, 0};
    return 1;
  }
  void acknowledged(Association&, Lane, std::uint64_t message) override { acknowledged_messages.push_back(message); }
  void reported(Association&, std::uint64_t message, const Incoming&) override { reported_messages.push_back(message); }
  bool quiet(const Association&) const override { return !waits && jobs[0].empty() && jobs[1].empty(); }
  Take deliver(Association&, const Incoming& in) override {
    const Take t = verdict(in);
    if (t == Take::accepted) delivered.push_back({in.lane, in.psn, in.placed});
    return t;
  }
  bool place(Association&, const Incoming& in) override {
    if (can_place) placed.push_back(in.psn);
    return can_place;
  }
  std::uint32_t message_limit(const Association&) const override { return limit; }
  void send(const Address& to, const Frame& frame) override {
    Bytes body(frame.head.begin(), frame.head.end());
    for (const llp::Extent& e : frame.payload) body.insert(body.end(), e.address, e.address + e.length);
    heard.push_back({now, seal(body), {}});
    heard.back().d = parse(heard.back().octets, true).value();
    destinations.push_back(to);
  }
  std::uint32_t draw() override { return next_draw += 0x01010101; }

  Bytes memory_;
};

}  // namespace ewarp::rdscene
