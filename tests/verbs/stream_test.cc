// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The verbs of one stream between two queue pairs: every operation, sizes around every boundary, CRC on and off.
#include <cstring>
#include <random>

#include "provider/engine/engine.h"
#include "tests/verbs/two_qps.h"

// Last: cmocka's macros (fail) would cut through other headers.
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

using namespace ewarp;
using namespace ewarp::test;

namespace {

constexpr std::size_t kSizes[] = {0,    1,    2,    3,     4,     8,     63,    511,   512,    513,    1424,
                                  4095, 4096, 4097, 16384, 65535, 65536, 64750, 64768, 200000, 1000000};

struct Mode {
  const char* name;
  bool crc, extensions, tx_markers_a, tx_markers_b;
};
constexpr Mode kModes[] = {
    {"crc off, large ULPDUs", false, true, false, false},
    {"crc on, large ULPDUs", true, true, false, false},
    {"crc on, EMSS", true, false, false, false},
    {"crc on, markers both ways", true, false, true, true},
    {"crc off, markers one way", false, true, true, false},
};

void fill(Side& s, std::size_t offset, std::size_t n, unsigned seed) {
  std::mt19937 r(seed);
  for (std::size_t i = 0; i < n; ++i) *s.at(offset + i) = static_cast<std::byte>(r());
}

void connect(Side& a, Side& b, const Mode& m) {
  auto pa = params(true, m.crc, m.extensions), pb = params(false, m.crc, m.extensions);
  pa.tx_markers = pb.rx_markers = m.tx_markers_a;
  pb.tx_markers = pa.rx_markers = m.tx_markers_b;
  join(a, b, pa, pb);
}

// Holds: VRB-35
void sends_arrive(void**) {
  for (const Mode& m : kModes) {
    print_message("mode: %s\n", m.name);
    Side a, b;
    connect(a, b, m);
    unsigned seed = 1;
    for (const std::size_t n : kSizes) {
      fill(a, 0, n, ++seed);
      std::memset(b.at(0), 0x5a, n + 1);
      assert_int_equal(b.receive({b.sge(0, 1000001)}, n), 0);
      assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, static_cast<std::uint32_t>(n))}, 0, 0, IBV_SEND_SIGNALED, n), 0);
      const ibv_wc sent = a.wait(), got = b.wait();
      assert_int_equal(sent.status, IBV_WC_SUCCESS);
      assert_int_equal(sent.opcode, IBV_WC_SEND);
      assert_int_equal(got.status, IBV_WC_SUCCESS);
      assert_int_equal(got.opcode, IBV_WC_RECV);
      assert_int_equal(got.byte_len, n);
      assert_int_equal(got.wr_id, n);
      if (n > 0) assert_memory_equal(a.at(0), b.at(0), n);
      assert_int_equal(*b.at(n), 0x5a);
    }
  }
}

// Holds: MPA-39, VRB-35
void writes_and_reads(void**) {
  for (const Mode& m : kModes) {
    print_message("mode: %s\n", m.name);
    Side a(1100000), b(1100000);
    connect(a, b, m);
    unsigned seed = 100;
    for (const std::size_t n : kSizes) {
      fill(a, 1, n, ++seed);
      std::memset(b.at(0), 0x11, n + 5);
      const auto length = static_cast<std::uint32_t>(n);
      assert_int_equal(a.send(IBV_WR_RDMA_WRITE, {a.sge(1, length)}, b.address(3), b.mr->stag()), 0);
      assert_int_equal(a.wait().status, IBV_WC_SUCCESS);
      // The Read is executed after the Write (RFC 5040 section 5.5 rule 4).
      const std::vector<std::byte> written(a.at(1), a.at(1) + n);
      std::memset(a.at(1), 0, n);
      assert_int_equal(a.send(IBV_WR_RDMA_READ, {a.sge(1, length)}, b.address(3), b.mr->stag()), 0);
      const ibv_wc read = a.wait();
      assert_int_equal(read.status, IBV_WC_SUCCESS);
      assert_int_equal(read.opcode, IBV_WC_RDMA_READ);
      assert_int_equal(read.byte_len, n);
      if (n > 0) assert_memory_equal(a.at(1), written.data(), n);
      assert_int_equal(*b.at(2), 0x11);
      assert_int_equal(*b.at(n + 3), 0x11);
    }
  }
}

// ib_send_bw -e sleeps for a completion event while it waits for the peer's Write (its credits): after unsignalled
// sends, or with completions unread, a Write wakes it. Who was told everything is not woken.
void a_write_wakes_who_may_wait_for_it(void**) {
  constexpr unsigned kQuietly = 0;
  Side a(4096), b(4096);
  connect(a, b, kModes[0]);
  const auto write_to_a = [&] {
    assert_int_equal(b.send(IBV_WR_RDMA_WRITE, {b.sge(0, 8)}, a.address(0), a.mr->stag()), 0);
    assert_int_equal(b.wait().status, IBV_WC_SUCCESS);
  };
  const auto send_from_a = [&](unsigned flags) {
    assert_int_equal(b.receive({b.sge(0, 8)}), 0);
    assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 8)}, 0, 0, flags), 0);
    assert_int_equal(b.wait().status, IBV_WC_SUCCESS);
  };
  send_from_a(kQuietly);
  a.cq.arm(false);
  write_to_a();
  assert_true(a.cq_event());
  write_to_a();
  assert_false(a.cq_event(20));  // one event per arm

  a.cq.arm(true);
  write_to_a();
  assert_false(a.cq_event(20));  // a Write is not solicited
  send_from_a(IBV_SEND_SIGNALED);
  a.cq.arm(false);
  write_to_a();
  assert_true(a.cq_event());  // its completion lies there unread
  assert_int_equal(a.wait().status, IBV_WC_SUCCESS);
  a.cq.arm(false);
  write_to_a();
  assert_false(a.cq_event(20));
}

// A program that was about to poll posts more than the stream takes, and polls no more: it looks at its memory. Its
// peer reads on, and all of it arrives.
void who_was_about_to_poll_does_not(void**) {
  constexpr std::uint32_t kOctets = 16 << 10;  // not so much that the background thread is woken to send it
  constexpr int kWrites = 60;
  Side a(kOctets);
  StreamPair streams;
  assert_int_equal(a.qp->attach(std::move(streams.one), params(true), a.observer), 0);
  poll(nullptr, 0, 50);  // the background thread sleeps, most likely
  verbs::engine().application_will_pass();
  for (int i = 0; i < kWrites; ++i) assert_int_equal(a.send(IBV_WR_RDMA_WRITE, {a.sge(0, kOctets)}, 0, 1), 0);
  std::vector<std::byte> octets(1 << 16);
  std::size_t arrived = 0;
  for (int silent = 0; arrived < std::size_t{kOctets} * kWrites && silent < kPatience;) {
    const iovec into{octets.data(), octets.size()};
    const long n = streams.other->receive({&into, 1});
    assert_true(n > 0 || n == -EAGAIN);
    silent = n > 0 ? 0 : silent + 1;
    if (n > 0)
      arrived += static_cast<std::size_t>(n);
    else
      poll(nullptr, 0, 1);
  }
  assert_true(arrived >= std::size_t{kOctets} * kWrites);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sends_arrive),
      cmocka_unit_test(writes_and_reads),
      cmocka_unit_test(a_write_wakes_who_may_wait_for_it),
      cmocka_unit_test(who_was_about_to_poll_does_not),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
