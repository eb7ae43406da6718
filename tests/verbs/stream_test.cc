// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The verbs of one stream between two queue pairs: every operation, sizes around every boundary, CRC on and off.
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

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

// What a program does that looks at the memory that a peer writes, instead of asking for a completion. How many octets
// from the first on have this value.
[[gnu::noinline, gnu::no_sanitize_thread]] std::size_t how_many_are(const std::byte* at, std::size_t n,
                                                                    unsigned char value) {
  const auto* const octets = reinterpret_cast<const volatile unsigned char*>(at);
  std::size_t i = 0;
  while (i < n && octets[i] == value) ++i;
  return i;
}
[[gnu::noinline, gnu::no_sanitize_thread]] void take_over(std::byte* at, std::size_t n, unsigned char value) {
  auto* const octets = reinterpret_cast<volatile unsigned char*>(at);
  for (std::size_t i = 0; i < n; ++i) octets[i] = value;
}

// Waits for the last octet of a Write in another thread than the one that stores it, and then writes there itself.
class Looker {
 public:
  static constexpr unsigned char kTaken = 0xff;
  static unsigned char value_of(unsigned round) { return static_cast<unsigned char>(1 + round % 200); }

  Looker(std::byte* at, std::size_t n) : at_(at), n_(n) {
    take_over(at_, n_, kTaken);
    thread_ = std::thread([this] {
      for (unsigned round = 1; sees_the_last(round); ++round) {
        if (how_many_are(at_, n_, value_of(round)) != n_) ++wrong_;
        take_over(at_, n_, kTaken);
        taken_ = round;
      }
    });
  }
  Looker(const Looker&) = delete;
  Looker& operator=(const Looker&) = delete;
  ~Looker() {
    stop_ = true;
    thread_.join();
  }
  unsigned taken() const { return taken_; }
  // Rounds in which the last octet was there and another one was not.
  unsigned wrong() const { return wrong_; }

 private:
  bool sees_the_last(unsigned round) const {
    for (unsigned turn = 1; how_many_are(at_ + n_ - 1, 1, value_of(round)) != 1; ++turn) {
      if (stop_) return false;
      if (turn % 1000 == 0) std::this_thread::yield();
    }
    return true;
  }
  std::byte* const at_;
  const std::size_t n_;
  std::atomic<unsigned> taken_{0}, wrong_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Who sees the last octet of a Write sees them all, and none is stored after it (docs/design/verbs.md, memory that is
// waited for). In turns this thread receives the Write, by its polls, and the background thread does.
void the_last_octet_comes_last(void**) {
  constexpr unsigned kRounds = 1000;
  constexpr auto kLongest = std::chrono::milliseconds(150);  // a length; matters where all threads share a CPU
  for (const bool crc : {false, true}) {
    Side a, b;
    join(a, b, params(true, crc), params(false, crc));
    for (const std::size_t n : {1u, 2u, 8u, 15u, 16u, 17u, 63u, 64u, 65u, 1000u, 4096u, 16'389u, 70'000u, 300'001u}) {
      unsigned rounds = 0, failed = 0, lost = 0, undone = 0, wrong = 0;
      {
        Looker looker(b.at(0), n);
        using Clock = std::chrono::steady_clock;
        const auto end = Clock::now() + kLongest;
        while (rounds < kRounds && failed + lost == 0 && Clock::now() < end) {
          std::memset(a.at(0), Looker::value_of(++rounds), n);
          if (a.send(IBV_WR_RDMA_WRITE, {a.sge(0, static_cast<std::uint32_t>(n))}, b.address(0), b.mr->stag()) != 0 ||
              a.wait().status != IBV_WC_SUCCESS)
            ++failed;
          ibv_wc wc;
          const auto until = Clock::now() + std::chrono::milliseconds(kPatience);
          while (failed + lost == 0 && looker.taken() != rounds) {
            if (rounds % 2 == 0)
              b.cq.poll(1, &wc);
            else
              std::this_thread::yield();
            if (Clock::now() > until) ++lost;
          }
          if (failed + lost == 0 && how_many_are(b.at(0), n, Looker::kTaken) != n) ++undone;
        }
        wrong = looker.wrong();
      }
      if (failed + lost + undone + wrong != 0)
        fail_msg("%zu octets, crc %d, round %u: %u failed, %u lost, %u not in order, %u stored twice", n, crc, rounds,
                 failed, lost, wrong, undone);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sends_arrive),
      cmocka_unit_test(writes_and_reads),
      cmocka_unit_test(a_write_wakes_who_may_wait_for_it),
      cmocka_unit_test(who_was_about_to_poll_does_not),
      cmocka_unit_test(the_last_octet_comes_last),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
