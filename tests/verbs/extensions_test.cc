// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What consent to the extensions adds, between two queue pairs of ours: atomics, Write and Send with Immediate.
#include <endian.h>

#include <atomic>
#include <cstring>
#include <thread>

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

constexpr unsigned kAll =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

std::uint64_t* word(Side& s, std::size_t offset) {
  return reinterpret_cast<std::uint64_t*>(s.at(offset));
}

// Holds: RDM-32, RDM-33, VRB-35
void atomics_and_their_results(void**) {
  for (const bool crc : {false, true}) {
    Side a(4096, kAll), b(4096, kAll);
    join(a, b, params(true, crc), params(false, crc));
    *word(b, 8) = 40;
    assert_int_equal(a.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, a.sge(0, 8), b.address(8), b.mr->stag(), 2), 0);
    ibv_wc wc = a.wait();
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_FETCH_ADD);
    assert_int_equal(wc.byte_len, 8);
    assert_true(*word(a, 0) == 40 && *word(b, 8) == 42);
    for (const std::uint64_t expected : {41u, 42u}) {
      assert_int_equal(a.atomic(IBV_WR_ATOMIC_CMP_AND_SWP, a.sge(0, 8), b.address(8), b.mr->stag(), expected, 7), 0);
      wc = a.wait();
      assert_int_equal(wc.status, IBV_WC_SUCCESS);
      assert_int_equal(wc.opcode, IBV_WC_COMP_SWAP);
      assert_true(*word(a, 0) == 42 && *word(b, 8) == (expected == 42 ? 7 : 42));
    }
    // Misaligned: a remote error, and nothing happens.
    assert_int_equal(a.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, a.sge(0, 8), b.address(12), b.mr->stag(), 1), 0);
    assert_int_equal(a.wait().status, IBV_WC_REM_OP_ERR);
    assert_int_equal(b.event(), IBV_EVENT_QP_FATAL);
    assert_true(*word(b, 8) == 7 && *word(b, 16) == 0);
  }
}

void no_right_no_atomic(void**) {
  Side a(4096, kAll), b(4096, kAll & ~unsigned{IBV_ACCESS_REMOTE_ATOMIC});
  join(a, b, params(true), params(false));
  assert_int_equal(a.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, a.sge(0, 8), b.address(8), b.mr->stag(), 1), 0);
  assert_int_equal(a.wait().status, IBV_WC_REM_ACCESS_ERR);
  assert_int_equal(b.event(), IBV_EVENT_QP_ACCESS_ERR);
  assert_true(*word(b, 8) == 0);
}

// Holds: RDM-35
// Four queue pairs and the CPU add to one word, and increment another by compare and swap; nothing is lost.
void rdm_35_no_update_is_lost(void**) {
  constexpr unsigned kThreads = 4, kRounds = 4000;
  Side target(4096, kAll);
  std::atomic_ref<std::uint64_t> sum(*word(target, 64)), count(*word(target, 128));
  std::atomic<unsigned> failures{0}, swaps{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      Side a(4096, kAll), b(64, kAll);
      // The word belongs to no side in particular: each QP's PD has a region of its own over it.
      MemoryRegion* mr = nullptr;
      if (memory().add(b.pd, target.at(0), 4096, target.address(0), kAll, &mr) != 0) ++failures;
      join(a, b, params(true), params(false));
      std::uint64_t guess = 0;
      for (unsigned i = 0; i < kRounds && failures == 0; ++i) {
        if (a.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, a.sge(0, 8), target.address(64), mr->stag(), 1 + t) != 0) ++failures;
        if (a.atomic(IBV_WR_ATOMIC_CMP_AND_SWP, a.sge(8, 8), target.address(128), mr->stag(), guess, guess + 1) != 0)
          ++failures;
        sum.fetch_add(1000);
        for (const int n : {0, 1})
          if (a.wait().status != IBV_WC_SUCCESS) failures += 1 + static_cast<unsigned>(n);
        if (*word(a, 8) == guess) ++swaps;
        guess = *word(a, 8) == guess ? guess + 1 : *word(a, 8);
        std::uint64_t seen = count.load();
        if (count.compare_exchange_strong(seen, seen + 1)) ++swaps;
      }
      b.qp->destroy();
      memory().remove(mr);
    });
  for (auto& t : threads) t.join();
  assert_int_equal(failures, 0);
  assert_true(sum == std::uint64_t{kRounds} * (1 + 2 + 3 + 4 + 4 * 1000));
  assert_true(count == swaps);
}

// Holds: RDM-34
void atomics_and_reads_complete_in_order(void**) {
  Side a(4096, kAll), b(4096, kAll);
  join(a, b, params(true), params(false));
  constexpr unsigned kRounds = 500;
  for (unsigned i = 0; i < kRounds; ++i) {
    assert_int_equal(a.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, a.sge(0, 8), b.address(0), b.mr->stag(), 1), 0);
    assert_int_equal(a.send(IBV_WR_RDMA_READ, {a.sge(8, 8)}, b.address(0), b.mr->stag()), 0);
    assert_int_equal(a.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, a.sge(16, 8), b.address(0), b.mr->stag(), 1), 0);
    for (const auto opcode : {IBV_WC_FETCH_ADD, IBV_WC_RDMA_READ, IBV_WC_FETCH_ADD}) {
      const ibv_wc wc = a.wait();
      assert_int_equal(wc.status, IBV_WC_SUCCESS);
      assert_int_equal(wc.opcode, opcode);
    }
    assert_true(*word(a, 0) == 2 * i && *word(a, 8) == 2 * i + 1 && *word(a, 16) == 2 * i + 1);
  }
}

constexpr std::size_t kSizes[] = {0,    1,    2,    3,     8,     63,    511,   512,    513,    1424,
                                  4095, 4096, 4097, 16384, 64749, 64750, 64751, 200000, 1000000};

// Holds: RDM-28, RDM-30, VRB-28, VRB-35
void writes_with_immediate(void**) {
  for (const bool crc : {false, true})
    for (const bool inlined : {false, true}) {
      Side a(1100000), b(1100000);
      join(a, b, params(true, crc), params(false, crc));
      std::uint32_t immediate = 0xfedcba98;
      for (const std::size_t n : kSizes) {
        if (inlined && n > 256) continue;
        for (std::size_t i = 0; i < n; ++i) *a.at(i) = static_cast<std::byte>(i * 7 + n);
        std::memset(b.at(0), 0x11, n + 80);
        assert_int_equal(b.receive({b.sge(0, 64)}, n), 0);
        const unsigned flags = IBV_SEND_SIGNALED | (inlined ? unsigned{IBV_SEND_INLINE} : 0u);
        assert_int_equal(a.send(IBV_WR_RDMA_WRITE_WITH_IMM, {a.sge(0, static_cast<std::uint32_t>(n))}, b.address(64),
                                b.mr->stag(), flags, 1, ++immediate),
                         0);
        const ibv_wc sent = a.wait(), got = b.wait();
        assert_int_equal(sent.status, IBV_WC_SUCCESS);
        assert_int_equal(sent.opcode, IBV_WC_RDMA_WRITE);
        assert_int_equal(got.status, IBV_WC_SUCCESS);
        assert_int_equal(got.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        assert_int_equal(got.wc_flags, IBV_WC_WITH_IMM);
        assert_int_equal(be32toh(got.imm_data), immediate);
        assert_int_equal(got.byte_len, n);
        assert_int_equal(got.wr_id, n);
        if (n > 0) assert_memory_equal(a.at(0), b.at(64), n);
        assert_int_equal(*b.at(63), 0x11);
        assert_int_equal(*b.at(64 + n), 0x11);
      }
    }
}

// Holds: RDM-28, VRB-28, VRB-35
void sends_with_immediate(void**) {
  for (const bool crc : {false, true}) {
    Side a(1100000), b(1100000);
    join(a, b, params(true, crc), params(false, crc));
    std::uint32_t immediate = 0x01020304;
    for (const std::size_t n : kSizes) {
      for (std::size_t i = 0; i < n; ++i) *a.at(i) = static_cast<std::byte>(i * 5 + n);
      assert_int_equal(b.receive({b.sge(0, 1000000)}, n), 0);
      assert_int_equal(a.send(IBV_WR_SEND_WITH_IMM, {a.sge(0, static_cast<std::uint32_t>(n))}, 0, 0, IBV_SEND_SIGNALED,
                              1, ++immediate),
                       0);
      const ibv_wc sent = a.wait(), got = b.wait();
      assert_int_equal(sent.status, IBV_WC_SUCCESS);
      assert_int_equal(sent.opcode, IBV_WC_SEND);
      assert_int_equal(got.status, IBV_WC_SUCCESS);
      assert_int_equal(got.opcode, IBV_WC_RECV);
      assert_int_equal(got.wc_flags, IBV_WC_WITH_IMM);
      assert_int_equal(be32toh(got.imm_data), immediate);
      assert_int_equal(got.byte_len, n);
      if (n > 0) assert_memory_equal(a.at(0), b.at(0), n);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(atomics_and_their_results), cmocka_unit_test(no_right_no_atomic),
      cmocka_unit_test(rdm_35_no_update_is_lost),  cmocka_unit_test(atomics_and_reads_complete_in_order),
      cmocka_unit_test(writes_with_immediate),     cmocka_unit_test(sends_with_immediate),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
