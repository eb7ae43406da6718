// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What an association costs, and what strangers can do to a table: nothing but use its time. EWARP_SEED, EWARP_SEEDS as
// in rd_sim_test.
#include <cstdlib>
#include <map>
#include <random>

#include "llp/source_limit.h"
#include "tests/llp/counted_new.h"
#include "tests/llp/rd_scene.h"

using namespace ewarp;
using namespace ewarp::rdscene;

namespace {

// One end of many associations that have been used and are idle: no scene, so that nothing else is counted.
class Nobody final : public Upper, public Wire, public Entropy {
 public:
  std::vector<Bytes> sent;
  std::uint64_t sent_count = 0;
  bool keep = true;
  std::size_t left = 0;  // messages to be sent

 private:
  Admission admit(const Key&) override { return Admission::welcome; }
  void opening(Association&) override {}
  void established(Association&) override {}
  void ended(Association&, const Ended&) override {}
  bool peek(Association&, Lane lane, std::optional<std::uint32_t>*) override { return lane == Lane::req && left > 0; }
  void take(Association&, Lane, std::uint32_t, std::size_t, Outgoing& out) override {
    --left;
    out.head.fill(std::byte{0xc1});
    out.head_size = 14;
    out.last = true;
  }
  int memory(Association&, Lane, const Outgoing&, std::span<llp::Extent>) override { return 0; }
  void acknowledged(Association&, Lane, std::uint64_t) override {}
  void reported(Association&, std::uint64_t, const Incoming&) override {}
  bool quiet(const Association&) const override { return left == 0; }
  Take deliver(Association&, const Incoming&) override { return Take::accepted; }
  bool place(Association&, const Incoming&) override { return false; }
  std::uint32_t message_limit(const Association&) const override { return 100; }
  void send(const Address&, const Frame& f) override {
    ++sent_count;
    if (keep) sent.push_back(seal(f.head));
  }
  std::uint32_t draw() override { return static_cast<std::uint32_t>(random_()); }
  std::mt19937 random_{1};
};

std::size_t idle_cost(std::size_t peers) {
  Nobody nobody;
  Config c;
  c.max_associations = peers;
  const std::size_t before = g_allocated;
  Table table(c, nobody, nobody, nobody);
  Time now = kSecond;
  for (std::uint32_t i = 0; i < peers; ++i) {
    Key key{peer_address().ip, kOwnQpn, kPeerQpn, kQkey};
    put_be<std::uint32_t>(key.ip, 0, i);
    Address from{key.ip, 5};
    nobody.left = 1;
    table.wake(now, key, 5);
    const Open ours = std::get<Open>(parse(nobody.sent.back(), false).value().body);
    Open o = ours;
    o.destination_tag = ours.initial_tag;
    o.initial_tag = i + 1;
    table.receive(now, from, datagram(Prefix{Type::openack, 0, 0, kOwnQpn, kPeerQpn}, o));
    Data d;  // a segment each way, one of them out of order
    d.standing.tag = ours.initial_tag;
    d.standing.ack = ours.isn;
    for (const std::uint32_t psn : {o.isn[0] + 1, o.isn[0]}) {
      d.standing.psn = psn;
      const Bytes segment_octets = segment(true);
      table.receive(now, from, datagram(Prefix{Type::req, 0, 0, kOwnQpn, kPeerQpn}, d, segment_octets));
    }
    Standing s = d.standing;
    s.psn = 0;
    ++s.ack[0];
    table.receive(
        now, from,
        datagram(Prefix{Type::ack, 0, 0, kOwnQpn, kPeerQpn}, s, std::uint16_t{0}, std::array<SackWords, 2>{}));
    nobody.sent.clear();
    nobody.sent.shrink_to_fit();
  }
  table.expire(now + kMillisecond);  // no acknowledgement is owed any more
  nobody.sent.clear();
  nobody.sent.shrink_to_fit();
  EXPECT("all idle", table.size() == peers && table.held() == 0);
  return g_allocated - before;
}

// Holds: RD-16
void an_idle_association_costs_little(void**) {
  const std::size_t few = idle_cost(1000), many = idle_cost(11000);
  const double each = static_cast<double>(many - few) / 10000;
  print_message("association %zu octets, %.1f with its share of the index; a flight %zu\n", sizeof(Association), each,
                sizeof(Flight));
  // The layer above keeps seven MSNs of four octets beside it.
  assert_true(each + 28 <= 256);
}

// What is in flight goes back to nothing.
void nothing_is_kept_of_a_transfer(void**) {
  Scene s;
  s.establish();
  for (int round = 0; round < 3; ++round) {
    s.send(7, 9);
    assert_false(s.association().slim());
    s.say_data(Lane::req, kPeerIsn[0] + 40 * (round + 1u), segment(true));
    s.acked[0] += 9;
    s.say_ack();
    assert_false(s.association().slim());  // something ahead of its turn
    for (std::uint32_t k = 0; k < 40; ++k)
      s.say_data(Lane::req, kPeerIsn[0] + 40u * static_cast<unsigned>(round) + k + (round > 0), segment(true));
    s.pass(kMillisecond);
    assert_true(s.association().slim());
    s.quiet();
  }
}

// Each datagram ahead of its turn is followed by the one that was missing, but the lane never becomes empty.
void a_hole_that_moves_on_costs_nothing(void**) {
  for (const std::size_t payload : {std::size_t{0}, std::size_t{1000}}) {
    Scene s;
    s.establish();
    const std::uint32_t first = kPeerIsn[0];
    const auto say = [&](std::uint32_t ahead) {
      s.say_data(Lane::req, first + ahead, segment(true, payload));
      s.delivered.clear();
      s.quiet();
      s.destinations.clear();
    };
    say(1);
    for (std::uint32_t k = 0; k < 1000; k += 2) say(k + 3), say(k);
    const std::size_t before = g_allocated;
    for (std::uint32_t k = 1000; k < 1000000; k += 2) {
      say(k + 3);
      say(k);
      if (g_allocated > before + 10000) fail_msg("%zu octets more at PSN %u", g_allocated - before, k);
    }
    assert_true(s.table.held() > payload && s.table.held() < 2 * (payload + 200));
  }
}

// The bound of what is held is one of memory, not only of what lies in it.
void what_is_held_counts_as_memory(void**) {
  Scene s;
  s.establish();
  s.delivered.reserve(1000);
  s.destinations.reserve(1000);
  const auto say = [&](std::uint32_t ahead) {
    s.say_data(Lane::req, kPeerIsn[0] + ahead, segment(true));
    s.quiet();
  };
  say(0);
  s.say_data(Lane::rsp, kPeerIsn[1] + 1, segment(true));  // the flight stays
  s.quiet();
  const std::size_t before = g_allocated, held = s.table.held();
  for (std::uint32_t k = 2; k < 200; ++k) say(k);
  say(201);
  const auto is_counted = [&] {
    if (g_allocated > before + (s.table.held() - held) + 1000)
      fail_msg("%zu octets allocated, %zu held", g_allocated - before, s.table.held() - held);
  };
  is_counted();
  say(1);  // all but the last
  assert_int_equal(s.delivered.size(), 200);
  is_counted();
  say(200);
  assert_int_equal(s.table.held(), held);
  is_counted();
}

// Anything at all, from anywhere: no crash, nothing placed, no memory that stays, few answers.
void hostile_strangers(void**) {
  const char* many = std::getenv("EWARP_SEEDS");
  const std::uint64_t seeds = many ? std::strtoull(many, nullptr, 0) : 20;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    std::mt19937_64 random(seed);
    Config c;
    c.max_embryonic = 8;
    c.max_associations = 16;
    c.max_held = 10000;
    Scene s(c);
    s.establish();
    const std::uint64_t established = s.association().own_tag();
    for (int i = 0; i < 3000; ++i) {
      Address from = peer_address();
      if (random() % 2) from.ip[15] = static_cast<std::byte>(random());
      const std::uint32_t qpn = random() % 2 ? kPeerQpn : static_cast<std::uint32_t>(random() % 64) << 16 | 5000;
      // Never the tag of the association: that cannot be guessed.
      std::uint32_t tag = static_cast<std::uint32_t>(random());
      if (tag == s.own_tag || tag == kPeerTag) tag = 1;
      const Prefix p{static_cast<Type>(8 + random() % 7), static_cast<std::uint8_t>(random() & ~0x40u), 0, kOwnQpn,
                     qpn};
      Bytes octets;
      Standing st;
      st.tag = tag;
      st.psn = static_cast<std::uint32_t>(random());
      st.ack = {static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random())};
      switch (p.type) {
        case Type::req:
        case Type::rsp: {
          Data d;
          d.standing = st;
          if (p.flags & flag::kError) d.error_psn = 1;
          if (p.flags & flag::kImmediate) d.immediate = 1;
          octets = datagram(p, d, segment(true));
          break;
        }
        case Type::ack:
          octets = datagram(p, st, std::uint16_t{0}, std::array<SackWords, 2>{});
          break;
        case Type::open:
        case Type::openack: {
          Open o = s.offer();
          o.initial_tag = static_cast<std::uint32_t>(random() % 3);
          o.destination_tag = tag;
          o.cookie = random() % 3;
          o.qkey = random() % 2 ? kQkey : static_cast<std::uint32_t>(random() % 4);
          octets = datagram(p, o);
          break;
        }
        case Type::close:
          octets = datagram(p, Close{tag, {}, {}, 0});
          break;
        case Type::reset:
          octets = datagram(p, Reset{tag, static_cast<ResetReason>(random() % 9)});
          break;
      }
      if (random() % 8 == 0) octets.resize(random() % octets.size());
      if (random() % 8 == 0 && !octets.empty()) octets[random() % octets.size()] ^= std::byte{1};
      s.table.receive(s.now, from, octets, random() % 2);
      EXPECT("bounded", s.table.size() <= 16 && s.table.embryonic() <= 8 && s.table.held() == 0);
    }
    std::map<std::byte, unsigned> resets;  // by the last octet of the address
    unsigned answers = 0;
    const std::size_t established_sent = s.destinations.size() - s.heard.size();
    for (std::size_t i = 0; i < s.heard.size(); ++i) {
      const Heard& h = s.heard[i];
      if (h.type() == Type::reset) ++resets[s.destinations[established_sent + i].ip[15]];
      answers += h.type() == Type::openack;
      EXPECT("not larger than what asked", h.octets.size() <= 60);
    }
    for (const auto& [source, count] : resets) EXPECT("few resets", count <= 10);
    EXPECT("an answer for an OPEN", answers <= 3000);
    EXPECT("nothing came through", s.delivered.empty() && s.placed.empty() && s.endings.empty());
    EXPECT("still there", s.association().own_tag() == established);
    s.pass(31 * kSecond);  // embryonic ones are gone
    EXPECT("forgotten", s.table.embryonic() == 0);
  }
}

// The answers that one source uses up are not missing for another.
void a_flood_does_not_silence_the_answers_to_others(void**) {
  Scene s;
  std::uint32_t asked = 0;
  const auto ask = [&](unsigned source) {
    Address from = peer_address();
    // Each is an IPv6 network, in which the addresses of a host may change all the time.
    from.ip[6] = static_cast<std::byte>(source >> 8);
    from.ip[7] = static_cast<std::byte>(source);
    put_be<std::uint32_t>(from.ip, 12, ++asked);
    Standing st;
    st.tag = 0x1234;
    s.table.receive(
        s.now, from,
        datagram(Prefix{Type::ack, 0, 0, kOwnQpn, kPeerQpn}, st, std::uint16_t{0}, std::array<SackWords, 2>{}));
    const bool answered = !s.heard.empty();
    if (answered) assert_true(s.destinations.back() == from && s.expect(Type::reset).reset().tag == 0x1234);
    return answered;
  };
  unsigned answers = 0;
  for (int i = 0; i < 10000; ++i) answers += ask(1);
  assert_int_equal(answers, 10);
  // Of many, a few may share the entry of the one that floods.
  answers = 0;
  for (unsigned source = 2; source < 102; ++source) answers += ask(source);
  assert_true(answers >= 95);
  // What all of them together get is bounded, too.
  for (int i = 0; i < 20; ++i)
    for (unsigned source = 0; source < 5000; ++source) answers += ask(source);
  assert_true(answers + 10 <= 10 * llp::SourceLimit::kEntries);
  assert_false(ask(2));
  s.pass(kSecond);
  assert_true(ask(1) && ask(2));
}

// A peer that was let in may say what it likes, too: what it can make us keep is bounded.
void hostile_peer(void**) {
  Config c;
  c.max_held = 100000;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    Scene s(c);
    s.establish();
    s.verdict = [&](const Incoming&) { return static_cast<Take>(random() % 20 == 0 ? 1 + random() % 2 : 0); };
    for (int i = 0; i < 3000 && !s.gone(); ++i) {
      s.add(Lane::req, {5, random() % 2 == 0, {}, 50, {}});
      s.wake();
      const auto lane = static_cast<Lane>(random() % 2);
      s.acked = {s.own_isn[0] + static_cast<std::uint32_t>(random() % 20),
                 s.own_isn[1] + static_cast<std::uint32_t>(random() % 3)};
      const std::uint32_t psn = kPeerIsn[index(lane)] + static_cast<std::uint32_t>(random() % 400);
      switch (random() % 4) {
        case 0:
          s.say_data(lane, psn, untagged(random() % 2, random() % 1400), static_cast<std::uint8_t>(random() & 0x31));
          break;
        case 1:
          s.say_data(lane, psn, segment(random() % 2, random() % 1400), 0, random() % 2, psn);
          break;
        case 2:
          s.say_ack({s.acked[0] + 1 + static_cast<std::uint32_t>(random() % 900)},
                    static_cast<std::uint8_t>(random() & 0x32), static_cast<std::uint8_t>(random()));
          break;
        default:
          s.say_close(static_cast<std::uint8_t>(random() & 1));
          break;
      }
      s.pass(random() % kMillisecond);
      EXPECT("bounded", s.table.held() <= c.max_held && s.table.size() <= 1);
    }
    s.jobs[0].clear();
    s.pass(200 * kSecond);
    EXPECT("forgotten", s.gone() && s.table.held() == 0);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(an_idle_association_costs_little),
                              cmocka_unit_test(nothing_is_kept_of_a_transfer),
                              cmocka_unit_test(a_hole_that_moves_on_costs_nothing),
                              cmocka_unit_test(what_is_held_counts_as_memory),
                              cmocka_unit_test(hostile_strangers),
                              cmocka_unit_test(a_flood_does_not_silence_the_answers_to_others),
                              cmocka_unit_test(hostile_peer)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
