// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reliable datagrams from strangers and from a peer that was let in: the codec, and a table that must neither break,
// nor place anything for a stranger, nor grow beyond its bounds, nor answer more than it was asked.
#include <random>

#include "llp/rd/table.h"
#include "tests/fuzz/fuzz.h"
#include "tests/llp/rd_seal.h"

namespace ewarp::fuzz {
namespace {

using namespace llp::rd;
using rdtest::Bytes;
using rdtest::datagram;

constexpr std::uint32_t kOwn = 0x1c350, kPeer = 0x2c351;

// What was understood is understood again.
void check_codec(Octets in) {
  const Bytes copy = exact(in);
  const auto d = parse(copy, true);
  if (!d.ok()) return;
  const Bytes again = rdtest::emit_again(d.value());
  const auto e = parse(again, true);
  FUZZ_CHECK(e.ok() && e.value().prefix == d.value().prefix && rdtest::emit_again(e.value()) == again);
}

class Victim final : public Upper, public Wire, public Entropy {
 public:
  Victim() : table(config(), *this, *this, *this) {}
  static Config config() {
    Config c;
    c.max_embryonic = 4;
    c.max_associations = 8;
    c.max_held = 20000;
    c.without_crc = true;  // so that mutations get past the CRC
    return c;
  }
  void hear(const Address& from, Octets octets, bool ce) {
    const Bytes copy = exact(octets);
    const std::size_t before = answers;
    table.receive(now, from, copy, ce);
    FUZZ_CHECK(table.size() <= 9 && table.embryonic() <= 4 && table.held() <= 20000);
    FUZZ_CHECK(answers - before <= most_answers);
  }
  void pass(Time t) {
    const Time until = now + t;
    for (int i = 0; table.deadline() <= until; ++i) {
      FUZZ_CHECK(i < 100000);
      now = std::max(now, table.deadline());
      table.expire(now);
    }
    now = until;
  }

  // To one datagram. A peer whose window opens gets what waits for it: see check_peer().
  std::size_t most_answers = 64;
  std::size_t answers = 0, resets = 0, deliveries = 0, placements = 0;
  std::uint32_t tag = 0;                // of our last OPEN or OPENACK
  std::array<std::uint32_t, 2> next{};  // PSNs behind those of the last segments
  std::size_t work = 0;
  unsigned mood = 0;
  Time now = kSecond;
  std::size_t reports = 0;
  std::uint32_t bad_psn = 0;
  Table table;

 private:
  Admission admit(const Key& k) override { return k.qkey == 7 ? Admission::unknown : Admission::welcome; }
  void opening(Association&) override {}
  void established(Association&) override {}
  void ended(Association&, const Ended& how) override {
    reports = 0;
    if (how.why == Ending::unreachable || how.why == Ending::refused) work = 0;
  }
  bool peek(Association&, Lane lane, std::optional<std::uint32_t>* first_msn) override {
    first_msn->reset();
    return lane == Lane::req ? work > 0 : reports > 0;
  }
  void take(Association&, Lane lane, std::uint32_t psn, std::size_t, Outgoing& out) override {
    out.head.fill(std::byte{0xc1});
    out.head_size = 18;
    out.last = psn % 3 == 0;
    if (lane == Lane::req) {
      --work;
      out.message = psn / 3 + 1;
    } else {
      --reports;
      out.error_psn = bad_psn;
    }
  }
  int memory(Association&, Lane, const Outgoing&, std::span<llp::Extent>) override { return 0; }
  void acknowledged(Association&, Lane, std::uint64_t) override {}
  void reported(Association&, std::uint64_t, const Incoming&) override {}
  bool quiet(const Association&) const override { return work == 0 && reports == 0; }
  Take deliver(Association&, const Incoming& in) override {
    ++deliveries;
    mood = mood * 5 + 1;
    if (in.lane == Lane::req && mood % 7 == 0) return Take::no_receive;
    if (in.lane == Lane::rsp || mood % 7 != 1) return mood % 101 == 0 ? Take::violation : Take::accepted;
    ++reports;
    bad_psn = in.psn;
    return Take::bad;
  }
  bool place(Association&, const Incoming& in) override {
    ++placements;
    return in.psn % 2 == 0;
  }
  std::uint32_t message_limit(const Association&) const override { return 1 + mood % 50; }
  void send(const Address&, const Frame& f) override {
    ++answers;
    resets += (std::to_integer<unsigned>(f.head[0]) & 15) == 14;
    const unsigned type = std::to_integer<unsigned>(f.head[0]) & 15;
    if (type == 8 || type == 9) next[type - 8] = get_be<std::uint32_t>(f.head, 16) + 1;
    if ((type != 11 && type != 12) || get_be<std::uint32_t>(f.head, 16) == 0) return;
    tag = get_be<std::uint32_t>(f.head, 16);
    next = {get_be<std::uint32_t>(f.head, 24), get_be<std::uint32_t>(f.head, 28)};
  }
  std::uint32_t draw() override { return random_() & 0xffffffffu; }
  std::mt19937_64 random_{1};
};

Address peer() {
  Address a;
  a.ip[15] = std::byte{9};
  a.port = 0xc351;
  return a;
}

// The input as datagrams of a stranger: nothing comes of them.
void check_stranger(Octets in) {
  Victim v;
  for (Octets rest = in; !rest.empty();) {
    const std::size_t n = std::min<std::size_t>(rest.size(), 20 + std::to_integer<std::size_t>(rest[0]));
    v.hear(peer(), rest.first(n), false);
    rest = rest.subspan(n);
  }
  v.hear(peer(), in, true);
  FUZZ_CHECK(v.deliveries == 0 && v.placements == 0 && v.resets <= 10);
  v.pass(40 * kSecond);
  FUZZ_CHECK(v.table.embryonic() == 0);
}

// The input as the deeds of a peer whose tag is right: three octets each say what it does.
void check_peer(Octets octets, std::size_t size) {
  Victim v;
  v.most_answers += 255 + 100;  // the windows that the peer can have, below
  Input in(reinterpret_cast<const std::uint8_t*>(octets.data()), size);
  const auto prefix = [](Type t, unsigned flags, unsigned aux = 0) {
    return Prefix{t, static_cast<std::uint8_t>(flags), static_cast<std::uint8_t>(aux), kOwn, kPeer};
  };
  Open o;
  o.initial_tag = 5;
  o.window = {100, 100};
  o.isn = {0xfffffff0, 3};
  o.msn_limit = 50;
  o.max_seg = 1472;
  v.hear(peer(), datagram(prefix(Type::open, 0), o), false);
  FUZZ_CHECK(v.tag != 0);
  const Bytes segment(18 + in.octet(), static_cast<std::byte>(in.octet()));
  Bytes whole = segment;
  for (int i = 0; i < 300 && !in.rest().empty(); ++i) {
    const unsigned what = in.octet(), a = in.octet(), b = in.octet();
    Standing s;
    s.tag = v.tag;
    s.ack = {v.next[0] - (a & 3), v.next[1]};
    s.psn = o.isn[what & 1] + a;
    s.window = {static_cast<std::uint16_t>(b), 100};
    s.msn_limit = b;
    whole[0] = static_cast<std::byte>(0x01 | (b & 0xc0));
    switch (what >> 1 & 7) {
      case 0:
      case 1:
      case 2: {
        Data d;
        d.standing = s;
        if (b & 4) d.error_psn = s.psn;
        v.hear(peer(), datagram(prefix(what & 1 ? Type::rsp : Type::req, b & 0x38), d, whole), b & 1);
        break;
      }
      case 3: {
        std::array<SackWords, kLaneCount> sack;
        sack[what & 1].set(a);
        v.hear(peer(), datagram(prefix(Type::ack, b & 0x32, a), s, std::uint16_t{0}, sack), false);
        break;
      }
      case 4:
        v.hear(peer(), datagram(prefix(Type::close, b & 1), Close{v.tag, {s.psn, a}, s.ack, 0}), false);
        break;
      case 5: {
        Open again = o;
        again.initial_tag = 5 + (b & 1);
        again.destination_tag = v.tag;
        again.cookie = a;
        v.hear(peer(), datagram(prefix(b & 2 ? Type::open : Type::openack, b & 1), again), false);
        break;
      }
      case 6:
        v.work += a % 16;
        if (v.work > 0) v.table.wake(v.now, {peer().ip, kOwn, kPeer, 0}, 0xc351);
        break;
      default:
        v.pass(Time{a} * (b & 1 ? kMillisecond : 50 * kMicrosecond));
        break;
    }
  }
  v.work = 0;
  v.pass(600 * kSecond);
  v.reports = 0;
  v.pass(600 * kSecond);
  FUZZ_CHECK(v.table.size() == 0 && v.table.held() == 0);
}

}  // namespace
}  // namespace ewarp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ewarp::fuzz;
  const ewarp::Octets in = Input(data, size).rest();
  check_codec(in);
  check_stranger(in);
  check_peer(in, size);
  return 0;
}
