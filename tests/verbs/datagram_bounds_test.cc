// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// UD: what many peers cost (nothing), what strangers can make it keep or say (nothing, and little), and who waits for
// whom when there is much to do.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <thread>

#include "provider/engine/engine.h"
#include "tests/verbs/datagram_sides.h"

#include "tests/vectors/vectors.h"
#include "tests/verbs/datagram_expect.h"

namespace {
std::atomic<long> live_octets{0};  // of operator new: EtherWARP is linked into this program
}

// Not inlined, or GCC takes them for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t n) {
  void* p = std::malloc(n);
  if (p == nullptr) throw std::bad_alloc();
  live_octets += static_cast<long>(malloc_usable_size(p));
  return p;
}
// Sanitizers bring one of their own.
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  void* p = std::malloc(n);
  live_octets += static_cast<long>(malloc_usable_size(p));
  return p;
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  if (p != nullptr) live_octets -= static_cast<long>(malloc_usable_size(p));
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  operator delete(p);
}

namespace ewarp::test {
namespace {

constexpr unsigned kPeers = kInstrumented ? 500 : 4000;

// The n-th of many addresses of the loopback interface.
std::uint32_t nth_address(unsigned n) {
  return 0x7f010001 + n;
}

std::string gid_text(unsigned n) {
  in_addr a{htonl(nth_address(n))};
  char text[INET_ADDRSTRLEN];
  return std::string("::ffff:") + inet_ntop(AF_INET, &a, text, sizeof text);
}

// Nothing is kept of what happened since `before`: what the engine's sleep takes is no more after many peers.
void expect_as_before(long before) {
  constexpr long kOfTheEngine = 2048;  // octets: a watch, a timer
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
  while (live_octets > before + kOfTheEngine && std::chrono::steady_clock::now() < until) poll(nullptr, 0, 1);
  if (live_octets > before + kOfTheEngine) fail_msg("%ld octets are kept", live_octets - before);
}

std::vector<std::byte> datagram(std::uint32_t to, std::uint32_t from, std::uint32_t qkey, std::size_t payload) {
  std::vector<std::byte> segment(18 + payload);
  put_be<std::uint16_t>(segment, 0, 0x4143);
  put_be<std::uint32_t>(segment, 10, 1);
  std::vector<std::byte> out(64 + payload);
  const std::size_t header = llp::UdSend{qkey, {}}.emit(out, to, from);
  out.resize(llp::finish_datagram(out, header, segment));
  return out;
}

// To that many addresses and back: the sender's and the receiver's memory stays what it was.
void peers_cost_nothing(void**) {
  DatagramSide a, b;
  const auto exchange = [&](unsigned n) {
    AddressHandleObject there = a.address(gid_text(n).c_str());
    assert_int_equal(b.receive({b.sge(0, 100)}), 0);
    assert_int_equal(a.send(there, b.qp->number(), {a.sge(0, 8)}), 0);
    expect_send(a);
    expect_receive(b, a, 8);
    // Another host answers.
    RawPeer peer(nth_address(n));
    assert_int_equal(b.receive({b.sge(0, 100)}), 0);
    peer.send(b.qp->number(), datagram(b.qp->number(), n + 1, kQkey, 8));
    const ibv_wc wc = b.wait();
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.src_qp, n + 1);
  };
  for (unsigned n = 0; n < 100; ++n) exchange(n);
  const long before = live_octets;
  for (unsigned n = 100; n < kPeers; ++n) exchange(n);
  expect_as_before(before);
}

// Each from an address and a QP of its own: good ones without a receive, replays, wrong keys, too long, opens of
// associations and answers to questions that nobody asked. Nothing is kept, and hardly anything is answered.
void strangers_leave_nothing(void**) {
  DatagramSide b;
  assert_int_equal(b.receive({b.sge(0, 41)}), 0);
  const std::uint32_t number = b.qp->number();
  std::vector<std::byte> open(60);
  const llp::DatagramPrefix prefix{llp::DatagramType::rd_open, 0, 14, 0, number, 7};
  prefix.emit(MutableOctets(open).first<12>());
  assert_int_equal(llp::finish_datagram(open, 56, std::nullopt), open.size());
  std::vector<std::byte> reply(64);
  reply.resize(llp::finish_datagram(reply, llp::SidrReply{1, 0, 2, 3}.emit(reply, number, 7), Octets{}));
  stats::Datagrams& counters = stats::page().datagrams;
  const auto handled = [&] {
    std::uint64_t n = 0;
    for (const auto& c : counters.drops) n += c;
    return n;
  };
  const auto visit = [&](unsigned n) {
    const auto seen = handled();
    const auto too_long = datagram(number, n, kQkey, 5);
    {
      RawPeer stranger(nth_address(n));
      stranger.send(number, datagram(number, n, kQkey ^ n, 5));
      stranger.send(number, too_long);
      stranger.send(number, too_long);
      stranger.send(number, open);
      stranger.send(number, open);
      stranger.send(number, reply);
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
    while (handled() < seen + 6 && std::chrono::steady_clock::now() < until) poll(nullptr, 0, 0);
    assert_int_equal(handled() - seen, 6);
  };
  for (unsigned n = 1; n < 50; ++n) visit(n);
  const long before = live_octets;
  const auto answers = counters.errors_sent.load();
  const auto begin = std::chrono::steady_clock::now();
  for (unsigned n = 50; n < kPeers; ++n) visit(n);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  expect_as_before(before);
  // A hundred in a window of a second, however many ask.
  assert_true(static_cast<double>(counters.errors_sent - answers) <= 100 * (seconds.count() + 2));
  // The receive is still there, and so is its queue pair.
  RawPeer friendly;
  friendly.send(number, datagram(number, 9, kQkey, 1));
  const ibv_wc wc = b.wait();
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  assert_int_equal(wc.src_qp, 9);
}

// Headers and segments of random octets behind a prefix and a CRC that are good. What is no Send is dropped; the memory
// of the one receive is touched by nothing but a Send that fits.
void random_octets(void**) {
  DatagramSide b;
  RawPeer peer;
  std::mt19937 random(1);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  std::memset(b.at(0), 0x5a, 4096);
  assert_int_equal(b.receive({b.sge(0, 100)}), 0);
  stats::Datagrams& counters = stats::page().datagrams;
  const auto handled = [&] {
    std::uint64_t n = counters.errors_received;
    for (const auto& c : counters.drops) n += c;
    return n;
  };
  const std::uint64_t before = handled();
  constexpr unsigned kRounds = kInstrumented ? 2000 : 20000;
  for (unsigned round = 0; round < kRounds; ++round) {
    std::vector<std::byte> out(400);
    for (std::byte& octet : out) octet = static_cast<std::byte>(random());
    const auto words = static_cast<std::uint8_t>(3 + below(20));
    const llp::DatagramPrefix prefix{static_cast<llp::DatagramType>(below(16)),
                                     static_cast<std::uint8_t>(below(256) & ~llp::kFlagNoCrc),
                                     words,
                                     0,
                                     b.qp->number(),
                                     below(0x1000000)};
    prefix.emit(MutableOctets(out).first<12>());
    // Every second has our Q_Key where UD looks for it, but a control octet of no Send.
    if (round % 2 == 0) put_be<std::uint32_t>(out, 12, kQkey);
    std::vector<std::byte> segment(below(100));
    for (std::byte& octet : segment) octet = static_cast<std::byte>(random());
    if (segment.size() > 1) segment[1] = static_cast<std::byte>(0x40 | (below(2) != 0 ? 4 : 6 + below(10)));
    const bool bare = below(4) == 0;
    out.resize(llp::finish_datagram(out, words * 4, bare ? std::nullopt : std::optional<Octets>(segment)));
    peer.send(b.qp->number(), out);
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
    while (round % 32 == 31 && handled() <= before + round && std::chrono::steady_clock::now() < until)
      poll(nullptr, 0, 0);
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
  while (handled() < before + kRounds && std::chrono::steady_clock::now() < until) poll(nullptr, 0, 1);
  assert_int_equal(handled() - before, kRounds);
  for (std::size_t i = 0; i < 4096; ++i) assert_int_equal(std::to_integer<int>(*b.at(i)), 0x5a);
  assert_int_equal(b.state(), IBV_QPS_RTS);
  peer.send(b.qp->number(), datagram(b.qp->number(), 9, kQkey, 1));
  assert_int_equal(b.wait().status, IBV_WC_SUCCESS);
}

void post_many(DatagramSide& s, AddressHandleObject& ah, std::uint32_t to, unsigned count) {
  std::vector<ibv_send_wr> wrs(count);
  ibv_sge sge = s.sge(0, 8);
  for (unsigned i = 0; i < count; ++i) {
    wrs[i].next = i + 1 < count ? &wrs[i + 1] : nullptr;
    wrs[i].sg_list = &sge;
    wrs[i].num_sge = 1;
    wrs[i].opcode = IBV_WR_SEND;
    wrs[i].wr.ud.ah = &ah;
    wrs[i].wr.ud.remote_qpn = to;
    wrs[i].wr.ud.remote_qkey = kQkey;
  }
  ibv_send_wr* bad = nullptr;
  assert_int_equal(s.qp->post_send(wrs.data(), &bad), 0);
}

// Two queue pairs of one port that have long lists to send take turns.
void queue_pairs_take_turns(void**) {
  constexpr unsigned kEach = 2048, kTurn = 256;
  DatagramSide a(nullptr, IBV_QPS_RTS, 4096, kEach), b(nullptr, IBV_QPS_RTS, 4096, kEach);
  DatagramSide c(nullptr, IBV_QPS_RTS, 2 * kEach, 2 * kEach);
  assert_int_equal(a.qp->number() & 0xffff, b.qp->number() & 0xffff);
  AddressHandleObject from_a = a.address(), from_b = b.address();
  for (unsigned i = 0; i < 2 * kEach; ++i) assert_int_equal(c.receive({c.sge(0, 100)}), 0);
  engine().acquire();  // both are waiting when the first begins
  post_many(a, from_a, c.qp->number(), kEach);
  post_many(b, from_b, c.qp->number(), kEach);
  engine().leave();
  unsigned left_a = kEach, left_b = kEach, run = 0, longest = 0;
  std::uint32_t last = 0;
  while (left_a > 0 && left_b > 0) {
    const ibv_wc wc = c.wait();
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    run = wc.src_qp == last ? run + 1 : 1;
    last = wc.src_qp;
    longest = std::max(longest, run);
    --(wc.src_qp == a.qp->number() ? left_a : left_b);
  }
  assert_in_range(longest, 1, 2 * kTurn);
}

// A port that strangers flood does not keep another one from its messages.
void a_flood_is_one_ports_affair(void**) {
  std::vector<std::unique_ptr<DatagramSide>> all;
  do all.push_back(std::make_unique<DatagramSide>());
  while (all.size() < 300 && (all.back()->qp->number() & 0xffff) == (all.front()->qp->number() & 0xffff));
  DatagramSide& flooded = *all.front();
  DatagramSide& quiet = *all.back();
  assert_int_not_equal(quiet.qp->number() & 0xffff, flooded.qp->number() & 0xffff);
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    RawPeer peer;
    const auto octets = datagram(flooded.qp->number(), 7, ~kQkey, 1000);
    while (!stop) peer.send(flooded.qp->number(), octets);
  });
  AddressHandleObject ah = quiet.address();
  const auto before = drops(llp::DatagramDrop::qkey);
  while (drops(llp::DatagramDrop::qkey) == before) std::this_thread::yield();
  const auto flooding = drops(llp::DatagramDrop::qkey);
  for (unsigned n = 0; n < 500; ++n) {
    assert_int_equal(quiet.receive({quiet.sge(0, 100)}), 0);
    assert_int_equal(quiet.send(ah, quiet.qp->number(), {quiet.sge(0, 8)}), 0);
    expect_send(quiet);
    expect_receive(quiet, quiet, 8);
  }
  while (drops(llp::DatagramDrop::qkey) == flooding) std::this_thread::yield();  // it went on all the time
  stop = true;
  flood.join();
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(peers_cost_nothing),
      cmocka_unit_test(strangers_leave_nothing),
      cmocka_unit_test(random_octets),
      cmocka_unit_test(queue_pairs_take_turns),
      cmocka_unit_test(a_flood_is_one_ports_affair),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
