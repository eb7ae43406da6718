// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What RDMAP on reliable datagrams costs: octets for an idle association, and allocations in steady traffic.
#include <cstdlib>
#include <cstring>
#include <random>

#include "llp/rd/table.h"
#include "rdmap/datagram/endpoint.h"
#include "rdmap/message.h"
#include "tests/llp/counted_new.h"
#include "tests/llp/rd_seal.h"
#include "tests/vectors/vectors.h"

using namespace ewarp;
using namespace ewarp::llp::rd;
using rdmap::DatagramEndpoint;
using rdmap::Operation;
using rdmap::SendRequest;
using rdmap::Status;
using rdtest::datagram;
using Bytes = std::vector<std::byte>;

namespace {

constexpr std::uint32_t kOwn = 0x1c350, kPeer = 0x2c351;
constexpr std::size_t kMessage = 5000;

// A consumer with one request and endless receives, all in the same memory.
class Consumer final : public rdmap::DatagramConsumer {
 public:
  SendRequest request;
  bool waiting = false;
  std::size_t done = 0, received = 0;
  alignas(8) std::array<std::byte, kMessage> ours{}, theirs{};

 private:
  Admission admit(const rdmap::Peer&) override { return Admission::welcome; }
  SendRequest* next_send(const rdmap::Peer&) override { return waiting ? &request : nullptr; }
  void send_started(const rdmap::Peer&) override { waiting = false; }
  void send_done(SendRequest&, Status s) override { done += s == Status::success; }
  Status request_memory(const SendRequest&, std::uint64_t at, std::uint64_t n, rdmap::ExtentList& out) override {
    out.clear();
    out.add({ours.data() + at, n, nullptr, 0});
    return Status::success;
  }
  std::uint32_t receives() const override { return 100; }
  std::optional<Receive> take_receive() override { return 1; }
  std::uint64_t receive_capacity(Receive) override { return kMessage; }
  Status receive_memory(Receive, std::uint64_t at, std::uint64_t n, rdmap::ExtentList& out) override {
    out.clear();
    out.add({theirs.data() + at, n, nullptr, 0});
    return Status::success;
  }
  void receive_done(Receive, const rdmap::Peer&, const rdmap::Received& r) override {
    received += r.status == Status::success;
  }
  ddp::Verdict resolve(std::uint32_t, std::uint64_t to, std::uint64_t n, rdmap::RemoteRight,
                       llp::Extent& out) override {
    out = {theirs.data() + to, n, nullptr, 0};
    return ddp::Verdict::ok;
  }
  ddp::Verdict invalidate(std::uint32_t) override { return ddp::Verdict::ok; }
  bool copy_in(const llp::Extent& to, const std::byte* from) override {
    std::memcpy(to.address, from, to.length);
    return true;
  }
  bool atomic(const llp::Extent&, const rdmap::AtomicRequest&, std::uint64_t*) override { return true; }
  bool readable(const llp::Extent&) override { return true; }
  bool hold(const llp::Extent&) override { return true; }
  void let_go(const llp::Extent&) override {}
};

// A queue pair with its table; what it sends is kept until it is asked for, without allocating.
struct Host final : public Wire, public Entropy {
  explicit Host(unsigned seed, std::size_t peers = 16) : random(seed) {
    Config c;
    c.max_associations = peers;
    table.emplace(c, endpoint, *this, *this);
  }
  struct Datagram {
    std::size_t size = 0;
    std::array<std::byte, 1500> octets;
  };
  void send(const Address&, const Frame& f) override {
    if (count == out.size()) fail_msg("too much at once");
    Datagram& d = out[count++];
    d.size = 0;
    const auto put = [&](const std::byte* from, std::size_t n) {
      std::memcpy(d.octets.data() + d.size, from, n);
      d.size += n;
    };
    put(f.head.data(), f.head.size());
    for (const llp::Extent& e : f.payload) put(e.address, e.length);
    llp::Crc32c crc;
    crc.update(Octets(d.octets).first(d.size));
    std::array<std::byte, 4> field;
    crc.emit(field);
    put(field.data(), field.size());
  }
  std::uint32_t draw() override { return static_cast<std::uint32_t>(random()); }

  Consumer consumer;
  DatagramEndpoint endpoint{consumer};
  std::optional<Table> table;
  std::mt19937_64 random;
  std::array<Datagram, 64> out;
  std::size_t count = 0;
};

Bytes send_segment(std::uint32_t mo, bool last) {
  Bytes s(ddp::UntaggedHeader::kSize + 100);
  ddp::UntaggedHeader{last, rdmap::control(rdmap::Opcode::send), 0, 0, 1, mo}.emit(
      std::span(s).first<ddp::UntaggedHeader::kSize>());
  return s;
}

// Associations that have carried a message each way, one of them out of order.
std::size_t idle_cost(std::size_t peers) {
  auto host = std::make_unique<Host>(1, peers);
  host->consumer.request.length = 100;
  const std::size_t before = g_allocated;
  Time now = kSecond;
  for (std::uint32_t i = 0; i < peers; ++i) {
    Key key{{}, kOwn, kPeer, 1};
    put_be<std::uint32_t>(key.ip, 0, i);
    const Address from{key.ip, 5};
    host->count = 0;
    host->consumer.waiting = true;
    host->table->wake(now, key, 5);
    const auto opened = parse(Octets(host->out[0].octets).first(host->out[0].size), false);
    const Open ours = std::get<Open>(opened.value().body);
    Open o = ours;
    o.destination_tag = ours.initial_tag;
    o.initial_tag = i + 1;
    o.msn_limit = 10;
    host->table->receive(now, from, datagram(Prefix{Type::openack, 0, 0, kOwn, kPeer}, o));
    Data d;
    d.standing.tag = ours.initial_tag;
    d.standing.ack = {ours.isn[0] + 1, ours.isn[1]};
    for (const std::uint32_t k : {1u, 0u}) {
      d.standing.psn = o.isn[0] + k;
      host->table->receive(now, from, datagram(Prefix{Type::req, 0, 0, kOwn, kPeer}, d, send_segment(k * 100, k == 1)));
    }
  }
  host->table->expire(now + kMillisecond);  // no acknowledgement is owed any more
  assert_int_equal(host->consumer.done, peers);
  assert_int_equal(host->consumer.received, peers);
  assert_int_equal(host->endpoint.active(), 0);
  assert_int_equal(host->table->size(), peers);
  return g_allocated - before;
}

// Holds: RD-16
void an_idle_association_costs_little(void**) {
  const std::size_t few = idle_cost(1000), many = idle_cost(11000);
  const double each = static_cast<double>(many - few) / 10000;
  print_message("an idle association with all it has at every layer: %.1f octets\n", each);
  assert_true(each <= 256);
}

// What one sends is given to the other until neither has anything to say.
void exchange(Host& a, Host& b, Time& now) {
  const auto carry = [&](Host& from, Host& to, std::uint16_t port) {
    for (std::size_t i = 0; i < from.count; ++i)
      to.table->receive(now, Address{{}, port}, Octets(from.out[i].octets).first(from.out[i].size));
    from.count = 0;
  };
  do {
    now += 10 * kMicrosecond;
    carry(a, b, 1);
    carry(b, a, 2);
  } while (a.count + b.count > 0);
}

void steady_traffic_allocates_nothing(void**) {
  auto a = std::make_unique<Host>(1), b = std::make_unique<Host>(2);
  Time now = kSecond;
  const Key key{{}, kOwn, kPeer, 1};
  const auto all_kinds = [&](int rounds) {
    for (int i = 0; i < rounds; ++i)
      for (const auto& [operation, length, immediate] : {std::tuple{Operation::send, std::size_t{64}, false},
                                                         {Operation::send, kMessage, true},
                                                         {Operation::write, kMessage, false},
                                                         {Operation::write, std::size_t{10}, true},
                                                         {Operation::read, kMessage, false},
                                                         {Operation::fetch_add, std::size_t{8}, false}}) {
        const std::size_t done = a->consumer.done;
        a->consumer.request = SendRequest{};
        a->consumer.request.operation = operation;
        a->consumer.request.length = static_cast<std::uint32_t>(length);
        a->consumer.request.immediate = immediate;
        a->consumer.waiting = true;
        a->table->wake(now, key, 2);
        exchange(*a, *b, now);
        for (Host* h : {a.get(), b.get()})
          if (h->table->deadline() <= now + 2 * kMillisecond) h->table->expire(now += 2 * kMillisecond);
        exchange(*a, *b, now);
        assert_int_equal(a->consumer.done, done + 1);
      }
  };
  all_kinds(5);
  const std::size_t before = g_allocations;
  all_kinds(1000);
  print_message("allocations in %d messages: %zu\n", 6000, g_allocations - before);
  assert_int_equal(g_allocations - before, 0);
  assert_int_equal(b->consumer.received, 3 * 1005);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(an_idle_association_costs_little),
      cmocka_unit_test(steady_traffic_allocates_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
