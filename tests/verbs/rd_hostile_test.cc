// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What strangers may send to a port with a queue pair of RD: nothing is placed, little is kept, few answers go out, and
// those that talk to it do not notice.
#include <cerrno>
#include <random>

#include "llp/rd/header.h"
#include "tests/llp/rd_seal.h"
#include "tests/verbs/captured_stderr.h"
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

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(garbage),
      cmocka_unit_test(unknown_tags),
      cmocka_unit_test(openings),
      cmocka_unit_test(a_peer_of_another_version),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
