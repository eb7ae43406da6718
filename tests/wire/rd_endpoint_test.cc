// Real RDMAP endpoints on reliable datagrams, on a network that loses, repeats and reorders: Sends of every kind,
// Writes with and without immediate, Reads, atomics. Between the two stands what a provider would be, in its simplest
// form: it takes the Endpoint's FPDUs apart into segments for the two lanes, and makes FPDUs of the segments that
// arrive.
#include <cstdlib>
#include <deque>
#include <random>
#include <set>

#include "ddp/header.h"
#include "tests/llp/rd_sim.h"
#include "tests/wire/fake_consumer.h"

using namespace ewarp;
using namespace ewarp::llp::rd;
using rdsim::Network;
using wire::FakeConsumer;
using wire::FakeReceive;
using wire::FakeRequest;
using Bytes = std::vector<std::byte>;

namespace {

constexpr std::uint32_t kFixed = 0x501, kWritten = 0x502, kCounters = 0x503;
constexpr std::size_t kSlot = 6000, kSlots = 64;

Bytes pattern(std::uint64_t seed, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(seed));
  Bytes out(n);
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  return out;
}

Bytes joined(const std::vector<Bytes>& pieces) {
  Bytes out;
  for (const Bytes& p : pieces) out.insert(out.end(), p.begin(), p.end());
  return out;
}

// An end of the stream, and the seam.
class End final : public rdsim::Node, public Upper, public Wire, public Entropy {
 public:
  End(Network& net, unsigned number, unsigned peer, const Config& config, std::uint64_t seed)
      : net_(net), number_(number), peer_(peer), random_(seed), table(config, *this, *this, *this) {
    net.attach(number, this);
    consumer.regions[kFixed] = {pattern(77, 20000), true, true, false};
    consumer.regions[kWritten] = {Bytes(kSlot * kSlots), true, true, true};
    consumer.regions[kCounters] = {Bytes(64), true, true, true};
    renew();
  }

  void wake() { table.wake(net_.now(), {rdsim::address_of(peer_).ip, qpn(number_), qpn(peer_), 1}, rdsim::kPort); }
  void post_receive(std::size_t size) {
    consumer.receives.push_back({0, {Bytes(size / 2), Bytes(size - size / 2)}});
    if (Association* a = table.find({rdsim::address_of(peer_).ip, qpn(number_), qpn(peer_), 1}))
      table.receives_posted(net_.now(), *a);
  }
  void receive(const Address& from, const Bytes& datagram, bool ce) override {
    table.receive(net_.now(), from, Bytes(datagram), ce);
  }
  Time deadline() const override { return table.deadline(); }
  void tick() override { table.expire(net_.now()); }

  FakeConsumer consumer;
  std::vector<Ending> endings;
  unsigned openings = 0;

 private:
  struct Produced {
    Bytes ulpdu;
    std::size_t fpdu;
    bool accepted = false;
  };
  static std::uint32_t qpn(unsigned n) { return rdsim::qpn_of(n); }

  void renew() {
    mpa::StreamParams p;
    p.initiator = true;  // nobody waits for a first FPDU: the association is open
    p.crc = false;
    p.extensions = true;
    p.ird = p.ord = 8;
    endpoint_ = std::make_unique<rdmap::Endpoint>(consumer, p, 1472 - kOverhead);
    produced_.clear();
    queue_ = {};
    first_ = next_ = 1;
    messages_ = 0;
    in_message_ = false;
  }

  // All that the endpoint has to say, cut into its FPDUs.
  void produce() {
    llp::Gather out;
    while (endpoint_->wants_transmit()) {
      endpoint_->transmit(out, 1);
      if (out.empty()) return;
      Bytes octets;
      for (const iovec& v : out.vectors()) {
        const auto* at = static_cast<const std::byte*>(v.iov_base);
        octets.insert(octets.end(), at, at + v.iov_len);
      }
      out.consume(out.octets());
      for (std::size_t at = 0; at < octets.size();) {
        const std::size_t n = get_be<std::uint16_t>(octets, at);
        const auto begin = octets.begin() + static_cast<std::ptrdiff_t>(at + 2);
        const Bytes ulpdu(begin, begin + static_cast<std::ptrdiff_t>(n));
        const unsigned op = rdmap::opcode_of(std::to_integer<std::uint8_t>(ulpdu[1]));
        const bool response = op == 2 || op == 7 || op == 11;
        produced_[next_] = {ulpdu, mpa::fpdu_octets(n), false};
        queue_[response].push_back(next_++);
        at += mpa::fpdu_octets(n);
      }
    }
  }

  Admission admit(const Key&) override { return Admission::welcome; }
  void opening(Association&) override {
    ++openings;
    if (openings > 1) renew();
  }
  void established(Association&) override {}
  void ended(Association&, const Ended& how) override { endings.push_back(how.why); }

  bool peek(Association& a, Lane lane, std::optional<std::uint32_t>* first_msn) override {
    first_msn->reset();
    if (a.state() == Association::State::closed) return consumer.next_send() != nullptr;
    produce();
    const auto& queue = queue_[index(lane)];
    if (queue.empty()) return false;
    const Bytes& ulpdu = produced_.at(queue.front()).ulpdu;
    if (!ddp::is_tagged(ulpdu)) {
      const auto h = ddp::UntaggedHeader::parse(ulpdu).value();
      if (h.qn == 0 && h.mo == 0) *first_msn = h.msn;
    }
    return true;
  }
  void take(Association&, Lane lane, std::uint32_t, std::size_t mulpdu, Outgoing& out) override {
    const std::uint64_t number = queue_[index(lane)].front();
    queue_[index(lane)].pop_front();
    const Bytes& ulpdu = produced_.at(number).ulpdu;
    const std::size_t header = ddp::is_tagged(ulpdu) ? ddp::TaggedHeader::kSize : ddp::UntaggedHeader::kSize;
    assert_true(ulpdu.size() <= mulpdu);
    std::copy_n(ulpdu.begin(), header, out.head.begin());
    out.head_size = static_cast<std::uint8_t>(header);
    out.message = number;
    out.payload = static_cast<std::uint32_t>(ulpdu.size() - header);
    out.last = true;  // each segment is accounted for
  }
  int memory(Association&, Lane, const Outgoing& o, std::span<llp::Extent> out) override {
    Bytes& ulpdu = produced_.at(o.message).ulpdu;
    out[0] = {ulpdu.data() + o.head_size, o.payload, nullptr, 0};
    return 1;
  }
  // Requests complete when all before them in the endpoint's one order is accepted too.
  void acknowledged(Association&, Lane, std::uint64_t message) override {
    produced_.at(message).accepted = true;
    std::size_t octets = 0;
    for (auto at = produced_.find(first_); at != produced_.end() && at->second.accepted; at = produced_.find(first_)) {
      octets += at->second.fpdu;
      produced_.erase(at);
      ++first_;
    }
    endpoint_->transmitted(octets);
  }
  void reported(Association&, std::uint64_t, const Incoming&) override { fail_msg("nothing was wrong"); }
  bool quiet(const Association&) const override { return endpoint_->quiescent() && produced_.empty(); }

  Take deliver(Association&, const Incoming& in) override {
    bool queue0 = false, last = false;
    if (!ddp::is_tagged(in.segment)) {
      const auto h = ddp::UntaggedHeader::parse(in.segment).value();
      queue0 = h.qn == 0;
      last = h.last;
      if (queue0 && !in_message_ && !consumer.has_receive()) return Take::no_receive;
    }
    Bytes fpdu(mpa::fpdu_octets(in.segment.size()));
    put_be<std::uint16_t>(fpdu, 0, static_cast<std::uint16_t>(in.segment.size()));
    std::copy(in.segment.begin(), in.segment.end(), fpdu.begin() + 2);
    assert_int_equal(endpoint_->receive(fpdu), fpdu.size());
    if (endpoint_->fault()) fail_msg("%s", rdmap::to_string(*endpoint_->fault()).c_str());
    if (queue0) in_message_ = !last;
    messages_ += queue0 && last;
    return Take::accepted;
  }
  bool place(Association&, const Incoming&) override { return false; }  // the endpoint wants its order
  std::uint32_t message_limit(const Association&) const override {
    const std::size_t free = consumer.receives.size() - (in_message_ ? 1 : 0);
    return messages_ + in_message_ + static_cast<std::uint32_t>(free);
  }
  void send(const Address& to, const Frame& frame) override {
    net_.send(rdsim::address_of(number_), to, rdsim::octets_of(frame));
  }
  std::uint32_t draw() override { return static_cast<std::uint32_t>(random_()); }

  Network& net_;
  unsigned number_, peer_;
  std::mt19937_64 random_;
  std::unique_ptr<rdmap::Endpoint> endpoint_;
  std::map<std::uint64_t, Produced> produced_;  // by number, until accepted
  std::array<std::deque<std::uint64_t>, 2> queue_;
  std::uint64_t first_ = 1, next_ = 1;
  std::uint32_t messages_ = 0;
  bool in_message_ = false;

 public:
  Table table;
};

// What one end does and what must come of it.
struct Work {
  End& from;
  End& to;
  Network& net;
  struct Message {
    Bytes payload;
    bool immediate, by_write, solicited, invalidate;
    std::uint32_t data, stag;
    std::size_t slot;
  };
  std::deque<Message> expected;
  std::map<std::uint64_t, Bytes> reads;
  std::map<std::size_t, Bytes> slots;
  std::multiset<std::uint64_t> counted;
  std::uint64_t added = 0;
  std::uint32_t window = 0x9000;
  std::size_t next_slot = 0, receives = 0;

  void post(std::uint64_t seed);
  void watch();
};

void Work::post(std::uint64_t seed) {
  using rdmap::Operation;
  const std::size_t n = seed % 3 == 0 ? net.below(kSlot) : net.below(300);
  const Bytes payload = pattern(seed, n);
  const std::vector<Bytes> pieces{Bytes(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(n / 3)),
                                  Bytes(payload.begin() + static_cast<std::ptrdiff_t>(n / 3), payload.end())};
  Message m{payload, false, false, net.below(2) == 0, false, static_cast<std::uint32_t>(seed), 0, kSlots};
  switch (net.below(6)) {
    case 0:
    case 1: {
      FakeRequest& r = from.consumer.post(Operation::send, pieces);
      r.solicited = m.solicited;
      m.invalidate = r.invalidate = net.below(4) == 0;
      if (m.invalidate) to.consumer.regions[m.stag = r.invalidate_stag = window++] = {};
      m.immediate = r.immediate = !m.invalidate && net.below(3) == 0;
      r.immediate_data = m.data;
      expected.push_back(m);
      ++receives;
      break;
    }
    case 2:
    case 3: {
      FakeRequest& r = from.consumer.post(Operation::write, pieces);
      r.remote_stag = kWritten;
      m.slot = next_slot++ % kSlots;
      r.remote_to = m.slot * kSlot;
      slots[m.slot] = payload;
      m.by_write = m.immediate = r.immediate = net.below(2) == 0;
      r.solicited = m.solicited;
      r.immediate_data = m.data;
      if (!m.immediate) break;
      expected.push_back(m);
      ++receives;
      break;
    }
    case 4: {
      FakeRequest& r = from.consumer.post(Operation::read, {Bytes(n / 2), Bytes(n - n / 2)});
      r.remote_stag = kFixed;
      r.remote_to = net.below(10000);
      const auto at = to.consumer.regions[kFixed].octets.begin() + static_cast<std::ptrdiff_t>(r.remote_to);
      reads[r.id] = Bytes(at, at + static_cast<std::ptrdiff_t>(n));
      break;
    }
    default: {
      FakeRequest& r = from.consumer.post(Operation::fetch_add, {Bytes(8)});
      r.remote_stag = kCounters;
      r.operand = 1 + net.below(1000);
      added += r.operand;
      break;
    }
  }
  from.wake();
}

void Work::watch() {
  from.consumer.on_send_done = [this](FakeRequest& r) {
    assert_true(r.status == rdmap::Status::success);
    if (r.operation == rdmap::Operation::read && joined(r.pieces) != reads.at(r.id)) fail_msg("a Read brought others");
    std::uint64_t before = 0;
    if (r.operation == rdmap::Operation::fetch_add) {
      std::memcpy(&before, r.pieces[0].data(), sizeof before);
      counted.insert(before);
    }
  };
  to.consumer.on_receive_done = [this](const FakeReceive& buffer, const rdmap::Received& r) {
    assert_true(r.status == rdmap::Status::success && !expected.empty());
    const Message m = expected.front();
    expected.pop_front();
    Bytes got = joined(buffer.pieces);
    // A response of the other lane may come between a Write and its immediate, and the Endpoint then loses the length.
    if (!m.by_write) assert_int_equal(r.length, m.payload.size());
    if (m.by_write) {
      const auto at = to.consumer.regions[kWritten].octets.begin() + static_cast<std::ptrdiff_t>(m.slot * kSlot);
      assert_true(std::equal(m.payload.begin(), m.payload.end(), at));
    } else {
      got.resize(m.payload.size());
      assert_true(got == m.payload);
    }
    assert_true(r.immediate == m.immediate && r.by_write == m.by_write && r.solicited == m.solicited);
    assert_true(!m.immediate || r.immediate_data == m.data);
    assert_true(r.invalidated == m.invalidate && r.invalidated_stag == m.stag);
  };
}

void run(std::uint64_t seed) {
  rdsim::name_run("rd_endpoint EWARP_SEED=" + std::to_string(seed));
  Network net(seed, {});
  net.conditions.loss = std::array{0.0, 0.02, 0.2}[net.below(3)];
  net.conditions.duplicate = 0.03;
  net.conditions.spread_ms = std::array{0.2, 3.0}[net.below(2)];
  Config c;
  c.idle_close = 300 * kMillisecond;
  c.dead_time = 300 * kSecond;
  c.credits = net.below(2) == 0;
  End a(net, 1, 2, c, seed * 2), b(net, 2, 1, c, seed * 2 + 1);
  Work ab{a, b, net, {}, {}, {}, {}}, ba{b, a, net, {}, {}, {}, {}};
  ab.watch();
  ba.watch();
  Time t = net.now();
  for (std::uint64_t i = 0; i < 60; ++i) {
    t += net.below(3) == 0 ? net.below(20) * kMillisecond : 0;
    if (i == 40) t += net.below(2) * 3 * kSecond;  // long enough for an idle close
    Work& w = net.below(2) == 0 ? ab : ba;
    net.at(t, [&w, seed, i] { w.post(seed * 1000 + i); });
  }
  t = net.now();
  for (int i = 0; i < 60; ++i) {
    t += net.below(200) * kMillisecond / 3;
    net.at(t, [&] { a.post_receive(kSlot), b.post_receive(kSlot); });
  }
  net.run();
  for (const Work* w : {&ab, &ba}) {
    for (const auto& r : w->from.consumer.sends)
      if (!r->done) fail_msg("seed %lu: request %lu is not done", seed, r->id);
    assert_true(w->expected.empty());
    for (const auto& [slot, payload] : w->slots) {
      const auto at = w->to.consumer.regions[kWritten].octets.begin() + static_cast<std::ptrdiff_t>(slot * kSlot);
      assert_true(std::equal(payload.begin(), payload.end(), at));
    }
    std::uint64_t total = 0;
    std::memcpy(&total, w->to.consumer.regions[kCounters].octets.data(), sizeof total);
    assert_int_equal(total, w->added);
    if (!w->counted.empty()) assert_int_equal(*w->counted.begin(), 0);
    for (const std::uint64_t before : w->counted) assert_int_equal(w->counted.count(before), 1);
    for (const Ending e : w->from.endings) assert_true(e == Ending::idle);
    assert_int_equal(w->from.table.size(), 0);
  }
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kSeeds = 20;
#else
constexpr std::uint64_t kSeeds = 200;
#endif

void every_operation_over_a_bad_network(void**) {
  const char* one = std::getenv("EWARP_SEED");
  const char* many = std::getenv("EWARP_SEEDS");
  const std::uint64_t first = one ? std::strtoull(one, nullptr, 0) : 0;
  const std::uint64_t count = one ? 1 : many ? std::strtoull(many, nullptr, 0) : kSeeds;
  for (std::uint64_t seed = first; seed < first + count; ++seed) run(seed);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(every_operation_over_a_bad_network)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
