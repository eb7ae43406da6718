// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Queue pairs of RD: every operation arrives once, whole, in order for each peer; a request's fault is its own.
#include <sys/mman.h>

#include <cerrno>
#include <map>
#include <set>

#include "tests/verbs/rd_sides.h"

namespace ewarp::test {
namespace {

void sends_of_all_sizes(void**) {
  RdSide a, b;
  AddressHandleObject ah = a.address();
  for (const std::uint32_t n : {0u, 1u, 7u, 511u, 512u, 513u, 1472u, 9000u, 65000u, 70000u, 200000u, 500000u}) {
    a.fill(0, n, n);
    std::memset(b.at(0), 0, n + 1);
    assert_int_equal(b.receive({b.sge(0, 600000)}), 0);
    assert_int_equal(a.request(ah, b.qp->number(), {.sges = {a.sge(0, n)}}), 0);
    expect_done(a, IBV_WC_SEND);
    expect_message(b, a, n);
    assert_true(b.filled(0, n, n));
  }
}

// Many pieces on either side, cut differently; inline data that changes at once.
void pieces(void**) {
  RdSide a, b;
  AddressHandleObject ah = a.address();
  for (const std::uint32_t n : {100u, 6000u, 150000u}) {
    a.fill(0, n, 3);
    const std::uint32_t third = n / 3;
    assert_int_equal(b.receive({b.sge(0, 10), b.sge(1000, 0), b.sge(3000, 17), b.sge(4000, 200000)}), 0);
    assert_int_equal(
        a.request(ah, b.qp->number(),
                  {.sges = {a.sge(0, third), a.sge(5, 0), a.sge(third, third), a.sge(2 * third, n - 2 * third)}}),
        0);
    expect_done(a, IBV_WC_SEND);
    expect_message(b, a, n);
    assert_true(b.filled(0, 10, 3));
    assert_true(b.filled(3000, 17, 3, 10));
    assert_true(b.filled(4000, n - 27, 3, 27));
  }
  a.fill(0, 256, 9);
  assert_int_equal(b.receive({b.sge(0, 400)}), 0);
  assert_int_equal(
      a.request(ah, b.qp->number(), {.sges = {a.sge(0, 256)}, .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}), 0);
  std::memset(a.at(0), 0, 256);
  expect_done(a, IBV_WC_SEND);
  expect_message(b, a, 256);
  assert_true(b.filled(0, 256, 9));
  assert_int_equal(a.request(ah, b.qp->number(), {.sges = {a.sge(0, 257)}, .flags = IBV_SEND_INLINE}), EINVAL);
}

void over_ipv6(void**) {
  bool v6 = false;
  for (const ibv_gid& g : any_device().gids()) v6 |= !llp::is_v4(address_of(g));
  if (!v6) {
    print_message("skipped: no IPv6 address on the loopback\n");
    skip();
  }
  RdSide a, b;
  AddressHandleObject ah = a.address("::1"), back = b.address("::1");
  for (const std::uint32_t n : {1u, 3000u, 400000u}) {
    a.fill(0, n, n);
    assert_int_equal(b.receive({b.sge(0, n)}), 0);
    assert_int_equal(a.request(ah, b.qp->number(), {.sges = {a.sge(0, n)}}), 0);
    expect_done(a, IBV_WC_SEND);
    expect_message(b, a, n);
    assert_true(b.filled(0, n, n));
    assert_int_equal(
        b.request(
            back, a.qp->number(),
            {.opcode = IBV_WR_RDMA_READ, .sges = {b.sge(500000, n)}, .remote_address = a.remote(0), .rkey = a.rkey()}),
        0);
    expect_done(b, IBV_WC_RDMA_READ);
    assert_true(b.filled(500000, n, n));
  }
  // To the same queue pair by the other family: another association.
  AddressHandleObject ah4 = a.address();
  assert_int_equal(b.receive({b.sge(0, 10)}, 5), 0);
  assert_int_equal(a.request(ah4, b.qp->number(), {.sges = {a.sge(0, 10)}}), 0);
  expect_done(a, IBV_WC_SEND);
  expect_message(b, a, 10, 5);
}

// Holds: RD-17
void immediate_and_invalidate(void**) {
  RdSide a, b;
  AddressHandleObject ah = a.address();
  for (const std::uint32_t n : {0u, 5u, 100000u}) {
    a.fill(0, n);
    assert_int_equal(b.receive({b.sge(0, 100000)}), 0);
    assert_int_equal(
        a.request(ah, b.qp->number(), {.opcode = IBV_WR_SEND_WITH_IMM, .sges = {a.sge(0, n)}, .immediate = 0xdeadbeef}),
        0);
    expect_done(a, IBV_WC_SEND);
    const ibv_wc wc = expect_message(b, a, n);
    assert_true((wc.wc_flags & IBV_WC_WITH_IMM) != 0);
    assert_int_equal(wc.imm_data, htobe32(0xdeadbeef));
    assert_true(b.filled(0, n));
  }
  MemoryRegion* extra = nullptr;
  assert_int_equal(
      memory().add(b.pd, b.at(0), 4096, b.remote(0), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &extra), 0);
  const std::uint32_t key = extra->stag();
  assert_int_equal(b.receive({b.sge(8192, 100)}), 0);
  assert_int_equal(
      a.request(ah, b.qp->number(), {.opcode = IBV_WR_SEND_WITH_INV, .sges = {a.sge(0, 3)}, .invalidate = key}), 0);
  expect_done(a, IBV_WC_SEND);
  const ibv_wc wc = expect_message(b, a, 3);
  assert_true((wc.wc_flags & IBV_WC_WITH_INV) != 0);
  assert_int_equal(wc.invalidated_rkey, key);
  assert_int_equal(
      a.request(ah, b.qp->number(),
                {.opcode = IBV_WR_RDMA_WRITE, .sges = {a.sge(0, 8)}, .remote_address = b.remote(0), .rkey = key}),
      0);
  expect_done(a, IBV_WC_RDMA_WRITE, 1, IBV_WC_REM_ACCESS_ERR);
  memory().remove(extra);
}

// Holds: RD-17
void one_sided(void**) {
  RdSide a, b;
  AddressHandleObject ah = a.address();
  for (const std::uint32_t n : {0u, 1u, 1000u, 66000u, 400000u}) {
    a.fill(0, n, n);
    assert_int_equal(
        a.request(
            ah, b.qp->number(),
            {.opcode = IBV_WR_RDMA_WRITE, .sges = {a.sge(0, n)}, .remote_address = b.remote(500000), .rkey = b.rkey()}),
        0);
    expect_done(a, IBV_WC_RDMA_WRITE);
    assert_true(b.filled(500000, n, n));  // complete is placed
    std::memset(a.at(0), 0, n);
    assert_int_equal(
        a.request(
            ah, b.qp->number(),
            {.opcode = IBV_WR_RDMA_READ, .sges = {a.sge(0, n)}, .remote_address = b.remote(500000), .rkey = b.rkey()}),
        0);
    expect_done(a, IBV_WC_RDMA_READ);
    assert_true(a.filled(0, n, n));
  }
  a.fill(0, 70000, 5);
  assert_int_equal(b.receive({}), 0);
  assert_int_equal(a.request(ah, b.qp->number(),
                             {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                              .sges = {a.sge(0, 70000)},
                              .immediate = 7,
                              .remote_address = b.remote(0),
                              .rkey = b.rkey()}),
                   0);
  expect_done(a, IBV_WC_RDMA_WRITE);
  const ibv_wc wc = b.wait();
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  assert_int_equal(wc.imm_data, htobe32(7));
  assert_int_equal(wc.byte_len, 70000);
  assert_true(b.filled(0, 70000, 5));
}

// Holds: RD-17
void atomics(void**) {
  RdSide a, b;
  AddressHandleObject ah = a.address();
  std::uint64_t value = 40;
  std::memcpy(b.at(64), &value, 8);
  const auto atomic = [&](ibv_wr_opcode op, std::uint64_t operand, std::uint64_t swap) {
    assert_int_equal(a.request(ah, b.qp->number(),
                               {.opcode = op,
                                .sges = {a.sge(0, 8)},
                                .remote_address = b.remote(64),
                                .operand = operand,
                                .swap = swap,
                                .rkey = b.rkey()}),
                     0);
    expect_done(a, op == IBV_WR_ATOMIC_FETCH_AND_ADD ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP);
    std::uint64_t before;
    std::memcpy(&before, a.at(0), 8);
    std::memcpy(&value, b.at(64), 8);
    return before;
  };
  assert_int_equal(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0), 40);
  assert_int_equal(value, 42);
  assert_int_equal(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 41, 9), 42);
  assert_int_equal(value, 42);
  assert_int_equal(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 42, 9), 42);
  assert_int_equal(value, 9);
}

// More at once than ORD, windows and credits allow: all complete, those for one peer in order.
void deep_queues(void**) {
  RdSide a, b;
  AddressHandleObject ah = a.address();
  for (std::uint64_t i = 0; i < 64; ++i) assert_int_equal(b.receive({b.sge(i * 2048, 2048)}, i), 0);
  for (std::uint64_t i = 0; i < 192; ++i) {
    const std::size_t at = i * 2048;
    a.fill(at, 2048, static_cast<unsigned>(i));
    RdSide::Request r{.sges = {a.sge(at, 2048)}, .id = i};
    if (i % 3 != 0) {
      r.opcode = i % 3 == 1 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
      r.remote_address = b.remote(300000 + (i % 3 == 1 ? at : 0));
      r.rkey = b.rkey();
    }
    assert_int_equal(a.request(ah, b.qp->number(), r), 0);
  }
  for (std::uint64_t i = 0; i < 192; ++i)
    expect_done(a, i % 3 == 0 ? IBV_WC_SEND : i % 3 == 1 ? IBV_WC_RDMA_WRITE : IBV_WC_RDMA_READ, i);
  for (std::uint64_t i = 0; i < 64; ++i) {
    expect_message(b, a, 2048, i);
    assert_true(b.filled(i * 2048, 2048, static_cast<unsigned>(3 * i)));
  }
  // The slots are free again.
  for (std::uint64_t i = 0; i < 256; ++i) assert_int_equal(a.request(ah, b.qp->number(), {.id = i, .flags = 0}), 0);
  assert_int_equal(a.request(ah, b.qp->number(), {}), ENOMEM);
  for (std::uint64_t i = 0; i < 256; ++i) assert_int_equal(b.receive({}, i), 0);
  for (std::uint64_t i = 0; i < 256; ++i) expect_message(b, a, 0, i);
}

void to_itself(void**) {
  RdSide a;
  AddressHandleObject ah = a.address();
  a.fill(0, 90000);
  assert_int_equal(a.receive({a.sge(200000, 100000)}), 0);
  assert_int_equal(a.request(ah, a.qp->number(), {.sges = {a.sge(0, 90000)}, .qkey = 0x80000000}), 0);
  std::set<int> seen;
  for (int i = 0; i < 2; ++i) {
    const ibv_wc wc = a.wait();
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    seen.insert(wc.opcode);
  }
  assert_int_equal(seen.size(), 2);
  assert_true(a.filled(200000, 90000));
  assert_int_equal(a.request(ah, a.qp->number(),
                             {.opcode = IBV_WR_RDMA_READ,
                              .sges = {a.sge(400000, 90000)},
                              .remote_address = a.remote(0),
                              .rkey = a.rkey()}),
                   0);
  expect_done(a, IBV_WC_RDMA_READ);
  assert_true(a.filled(400000, 90000));
}

// Holds: RD-17
// Each fault is told with the request that it belongs to; both queue pairs stay as they are.
void faults_are_of_one_request(void**) {
  RdSide a, b;
  AddressHandleObject ah = a.address();
  const auto write = [&](std::uint64_t to, std::uint32_t key, std::uint32_t n, std::uint64_t id) {
    return a.request(ah, b.qp->number(),
                     {.opcode = IBV_WR_RDMA_WRITE, .sges = {a.sge(0, n)}, .id = id, .remote_address = to, .rkey = key});
  };
  assert_int_equal(write(b.remote(0), b.rkey() ^ 0x100, 100000, 1), 0);
  assert_int_equal(write(b.remote(0), b.rkey(), 10, 2), 0);
  assert_int_equal(write(b.remote((1 << 20) - 5), b.rkey(), 10, 3), 0);
  RdSide::Request read{.opcode = IBV_WR_RDMA_READ, .sges = {a.sge(0, 10)}, .id = 4, .remote_address = b.remote(0)};
  read.rkey = b.rkey() ^ 0x100;
  assert_int_equal(a.request(ah, b.qp->number(), read), 0);
  RdSide::Request local{.sges = {a.sge(0, 10)}, .id = 5};
  local.sges[0].lkey ^= 0x100;
  assert_int_equal(a.request(ah, b.qp->number(), local), 0);
  assert_int_equal(b.receive({b.sge(0, 9)}, 77), 0);
  assert_int_equal(a.request(ah, b.qp->number(), {.sges = {a.sge(0, 10)}, .id = 6}), 0);
  assert_int_equal(write(b.remote(0), b.rkey(), 10, 7), 0);
  const std::map<std::uint64_t, ibv_wc_status> expected = {
      {1, IBV_WC_REM_ACCESS_ERR}, {2, IBV_WC_SUCCESS},         {3, IBV_WC_REM_ACCESS_ERR}, {4, IBV_WC_REM_ACCESS_ERR},
      {5, IBV_WC_LOC_PROT_ERR},   {6, IBV_WC_REM_INV_REQ_ERR}, {7, IBV_WC_SUCCESS}};
  for (const auto& [id, status] : expected) {
    const ibv_wc wc = a.wait();
    assert_int_equal(wc.wr_id, id);
    assert_int_equal(wc.status, status);
  }
  const ibv_wc too_long = b.wait();
  assert_int_equal(too_long.wr_id, 77);
  assert_int_equal(too_long.status, IBV_WC_LOC_LEN_ERR);
  assert_int_equal(a.state(), IBV_QPS_RTS);
  assert_int_equal(b.state(), IBV_QPS_RTS);
}

// What the caller controls is refused at once.
void refused_posts(void**) {
  RdSide a, b;
  AddressHandleObject ah = a.address();
  const auto post = [&](RdSide::Request r) { return a.request(ah, b.qp->number(), r); };
  assert_int_equal(post({.opcode = IBV_WR_LOCAL_INV}), EINVAL);
  assert_int_equal(post({.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sges = {a.sge(0, 4)}}), EINVAL);
  assert_int_equal(post({.opcode = IBV_WR_RDMA_READ, .flags = IBV_SEND_INLINE}), EINVAL);
  assert_int_equal(post({.sges = std::vector<ibv_sge>(9)}), EINVAL);
  assert_int_equal(a.request(ah, 0x1000000, {}), EINVAL);
  AddressHandleObject group = a.address("::ffff:239.1.1.1");
  assert_int_equal(a.request(group, 0xffffff, {}), EINVAL);
  Pd other(a.context);
  AddressHandleObject foreign = ah;
  foreign.impl.pd = &other;
  assert_int_equal(a.request(foreign, b.qp->number(), {}), EINVAL);
  // ibv_post_send() has room for the address of a Send alone.
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_RDMA_WRITE;
  assert_int_equal(a.qp->post_send(&wr, &bad), EINVAL);
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud = {&ah, b.qp->number(), kQkey};
  wr.wr_id = 1;
  assert_int_equal(b.receive({}), 0);
  assert_int_equal(a.qp->post_send(&wr, &bad), 0);
  expect_done(a, IBV_WC_SEND);
  expect_message(b, a, 0);
  RdSide idle(nullptr, IBV_QPT_DRIVER, IBV_QPS_RTR);
  assert_int_equal(idle.request(ah, b.qp->number(), {}), EINVAL);
}

// Sends wait for receives at the other end; nothing else waits for them.
void receives_come_late(void**) {
  RdSide a, b, c;
  AddressHandleObject ah = a.address();
  for (std::uint64_t i = 0; i < 20; ++i) {
    a.fill(i * 3000, 3000, static_cast<unsigned>(i));
    assert_int_equal(a.request(ah, b.qp->number(), {.sges = {a.sge(i * 3000, 3000)}, .id = i}), 0);
  }
  assert_int_equal(c.receive({c.sge(0, 10)}), 0);
  assert_int_equal(a.request(ah, c.qp->number(), {.sges = {a.sge(0, 5)}, .id = 99}), 0);
  expect_done(a, IBV_WC_SEND, 99);
  expect_message(c, a, 5);
  for (std::uint64_t i = 0; i < 20; ++i) {
    assert_int_equal(b.receive({b.sge(i * 3000, 3000)}, i), 0);
    expect_message(b, a, 3000, i);
    expect_done(a, IBV_WC_SEND, i);
    assert_true(b.filled(i * 3000, 3000, static_cast<unsigned>(i)));
  }
}

void shared_receives(void**) {
  const auto events = channel(16);
  Context context(any_device(), events);
  Pd pd(context);
  SharedReceiveQueue srq(pd, 1);
  ibv_srq_attr attr{64, 2, 0};
  assert_int_equal(srq.create(attr), 0);
  RdSide a, a2;
  AddressHandleObject ah = a.address(), ah2 = a2.address();
  {
    RdSide b(&srq), c(&srq);
    assert_int_equal(b.receive({b.sge(0, 100)}), EINVAL);
    const auto post = [&](RdSide& at, std::uint64_t i) {
      ibv_sge s = at.sge(i * 1000, 1000);
      ibv_recv_wr wr{i, nullptr, &s, 1}, *bad = nullptr;
      assert_int_equal(srq.post(&wr, &bad), 0);
    };
    // More senders than receives, to two queue pairs: each gets its turn.
    for (std::uint64_t i = 0; i < 10; ++i) {
      assert_int_equal(a.request(ah, b.qp->number(), {.sges = {a.sge(0, 4)}, .id = i}), 0);
      assert_int_equal(a2.request(ah2, c.qp->number(), {.sges = {a2.sge(0, 5)}, .id = i}), 0);
    }
    for (std::uint64_t i = 0; i < 20; ++i) post(b, i);
    std::set<std::uint64_t> ids;
    for (std::uint64_t i = 0; i < 10; ++i) {
      expect_done(a, IBV_WC_SEND, i);
      expect_done(a2, IBV_WC_SEND, i);
      for (RdSide* side : {&b, &c}) {
        const ibv_wc wc = side->wait();
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_int_equal(wc.byte_len, side == &b ? 4 : 5);
        assert_true(ids.insert(wc.wr_id).second);
      }
    }
    assert_int_equal(b.modify(IBV_QPS_ERR), 0);
    assert_int_equal(next_event(*events, test::kPatience).first, IBV_EVENT_QP_LAST_WQE_REACHED);
  }
}

// Everything that was posted comes back, in order; the peer's requests fail, its queue pair goes on.
void flush(void**) {
  RdSide a, b, c;
  AddressHandleObject ah = a.address();
  for (std::uint64_t i = 0; i < 5; ++i) assert_int_equal(a.receive({a.sge(i, 1)}, 100 + i), 0);
  for (std::uint64_t i = 0; i < 30; ++i)
    assert_int_equal(a.request(ah, (i % 2 ? b : c).qp->number(), {.sges = {a.sge(0, 100)}, .id = i, .flags = 0}), 0);
  assert_int_equal(a.modify(IBV_QPS_ERR), 0);
  for (std::uint64_t i = 0; i < 30; ++i) expect_done(a, IBV_WC_SEND, i, IBV_WC_WR_FLUSH_ERR);
  for (std::uint64_t i = 0; i < 5; ++i) expect_done(a, IBV_WC_RECV, 100 + i, IBV_WC_WR_FLUSH_ERR);
  assert_int_equal(a.request(ah, b.qp->number(), {.id = 50}), 0);
  expect_done(a, IBV_WC_SEND, 50, IBV_WC_WR_FLUSH_ERR);
  assert_int_equal(a.receive({}, 51), 0);
  expect_done(a, IBV_WC_RECV, 51, IBV_WC_WR_FLUSH_ERR);
  // b's messages to a queue pair in error are refused, without delay; those to others are not. The first may have been
  // sent before b heard that what a had begun is broken off: nobody can say whether it arrived.
  AddressHandleObject from_b = b.address();
  assert_int_equal(b.request(from_b, a.qp->number(), {.id = 0}), 0);
  const ibv_wc first = b.wait();
  assert_true(first.status == IBV_WC_RETRY_EXC_ERR || first.status == IBV_WC_REM_OP_ERR);
  assert_int_equal(b.request(from_b, a.qp->number(), {.id = 1}), 0);
  expect_done(b, IBV_WC_SEND, 1, IBV_WC_RETRY_EXC_ERR);
  assert_int_equal(b.state(), IBV_QPS_RTS);
  assert_int_equal(c.receive({}), 0);
  assert_int_equal(b.request(from_b, c.qp->number(), {.id = 2}), 0);
  expect_done(b, IBV_WC_SEND, 2);
  expect_message(c, b, 0);
  // And a is as new after a RESET.
  assert_int_equal(a.modify(IBV_QPS_RESET), 0);
  a.go(IBV_QPS_RTS);
  assert_int_equal(b.receive({}), 0);
  assert_int_equal(a.request(ah, b.qp->number(), {.id = 3}), 0);
  expect_done(a, IBV_WC_SEND, 3);
  expect_message(b, a, 0);
}

// A queue pair is destroyed with requests under way in both directions: no completion of it is seen afterwards.
void destroyed_while_busy(void**) {
  RdSide b;
  for (int round = 0; round < 20; ++round) {
    RdSide a;
    AddressHandleObject ah = a.address(), back = b.address();
    for (std::uint64_t i = 0; i < 8; ++i) {
      assert_int_equal(a.request(ah, b.qp->number(),
                                 {.opcode = IBV_WR_RDMA_WRITE,
                                  .sges = {a.sge(0, 300000)},
                                  .remote_address = b.remote(0),
                                  .rkey = b.rkey()}),
                       0);
      assert_int_equal(b.request(back, a.qp->number(),
                                 {.opcode = IBV_WR_RDMA_READ,
                                  .sges = {b.sge(500000, 100000)},
                                  .remote_address = a.remote(0),
                                  .rkey = a.rkey()}),
                       0);
    }
    a.qp->destroy();
    ibv_wc wc;
    for (int i = 0; i < 100; ++i) assert_int_equal(a.cq.poll(1, &wc), 0);
    for (std::uint64_t i = 0; i < 8; ++i) {
      const ibv_wc end = b.wait(20000);
      assert_true(end.status == IBV_WC_SUCCESS || end.status == IBV_WC_REM_OP_ERR ||
                  end.status == IBV_WC_RETRY_EXC_ERR);
    }
    assert_int_equal(b.state(), IBV_QPS_RTS);
  }
}

void many_peers(void**) {
  RdSide hub;
  std::vector<std::unique_ptr<RdSide>> peers;
  for (int i = 0; i < 100; ++i) peers.push_back(std::make_unique<RdSide>());
  AddressHandleObject ah = hub.address();
  for (std::uint64_t i = 0; i < 200; ++i) assert_int_equal(hub.receive({hub.sge(600000 + i * 100, 100)}, i), 0);
  for (std::uint64_t i = 0; i < peers.size(); ++i) {
    RdSide& p = *peers[i];
    AddressHandleObject to_hub = p.address();
    p.fill(0, 1000, static_cast<unsigned>(i));
    assert_int_equal(p.request(to_hub, hub.qp->number(), {.sges = {p.sge(0, 50)}}), 0);
    assert_int_equal(hub.request(ah, p.qp->number(),
                                 {.opcode = IBV_WR_RDMA_READ,
                                  .sges = {hub.sge(i * 1000, 1000)},
                                  .id = i,
                                  .remote_address = p.remote(0),
                                  .rkey = p.rkey()}),
                     0);
  }
  std::set<std::uint64_t> reads;
  std::set<std::uint32_t> senders;
  for (std::size_t i = 0; i < 2 * peers.size(); ++i) {
    const ibv_wc wc = hub.wait(20000);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    if (wc.opcode == IBV_WC_RECV) {
      assert_true(senders.insert(wc.src_qp).second);
    } else {
      assert_true(reads.insert(wc.wr_id).second);
      assert_true(hub.filled(wc.wr_id * 1000, 1000, static_cast<unsigned>(wc.wr_id)));
    }
  }
  for (const auto& p : peers) expect_done(*p, IBV_WC_SEND);
}

void drained(void**) {
  RdSide a, b;
  AddressHandleObject ah = a.address();
  a.fill(0, 500000);
  assert_int_equal(
      a.request(
          ah, b.qp->number(),
          {.opcode = IBV_WR_RDMA_WRITE, .sges = {a.sge(0, 500000)}, .remote_address = b.remote(0), .rkey = b.rkey()}),
      0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  assert_int_equal(a.qp->modify(attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  assert_int_equal(a.event(20000), IBV_EVENT_SQ_DRAINED);
  // What is posted now waits.
  assert_int_equal(b.receive({}), 0);
  assert_int_equal(a.request(ah, b.qp->number(), {.id = 2}), 0);
  assert_int_equal(a.modify(IBV_QPS_RTS), 0);
  const ibv_wc wc = a.wait();
  assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  expect_done(a, IBV_WC_SEND, 2);
  expect_message(b, a, 0);
}

// Peers are served while the application does nothing at all.
void progress_without_polling(void**) {
  RdSide a, b;
  AddressHandleObject ah = a.address();
  a.cq.arm(false);
  a.fill(0, 300000);
  assert_int_equal(
      a.request(
          ah, b.qp->number(),
          {.opcode = IBV_WR_RDMA_WRITE, .sges = {a.sge(0, 300000)}, .remote_address = b.remote(0), .rkey = b.rkey()}),
      0);
  pollfd p{a.completions->read_fd(), POLLIN, 0};
  assert_int_equal(poll(&p, 1, 20000), 1);
  expect_done(a, IBV_WC_RDMA_WRITE);
  assert_true(b.filled(0, 300000));
}

// The pages of a source go and come while their CRC is computed. What could not be read is sent again.
void memory_that_goes_while_it_is_read(void**) {
  constexpr std::uint32_t kOctets = 256 * 1024;
  FlickeringSource<RdSide> source(kOctets);
  auto& [a, b, ah, pages] = source;
  for (int round = 0; round < 20; ++round) {
    assert_int_equal(b.receive({b.sge(0, kOctets)}), 0);
    assert_int_equal(a.request(ah, b.qp->number(), {.sges = {pages.sge(kOctets)}}), 0);
    if (round % 4 == 3) {
      expect_done(a, IBV_WC_SEND);
      for (int i = 0; i < 4; ++i) expect_message(b, a, kOctets);
    }
  }
}

// Queue pairs of UD with the option ud_reliable: what a UD program sees, but that nothing is lost.
void reliable_ud(void**) {
  RdSide a(nullptr, IBV_QPT_UD), b(nullptr, IBV_QPT_UD);
  assert_int_equal(a.qp->type(), IBV_QPT_UD);
  AddressHandleObject ah = a.address("::ffff:127.0.0.1", 0x2b, 33);
  for (const std::uint32_t n : {0u, 1u, 4096u, 65463u}) {
    a.fill(0, n, n);
    assert_int_equal(b.receive({b.sge(0, kGrhOctets + n)}), 0);
    assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, n)}, {.opcode = IBV_WR_SEND_WITH_IMM, .immediate = 5}), 0);
    expect_done(a, IBV_WC_SEND);
    assert_int_equal(expect_receive(b, a, n).imm_data, htobe32(5));
    assert_true(b.filled(kGrhOctets, n, n));
    const Octets h(b.at(20), 20);
    assert_int_equal(get_be<std::uint8_t>(h, 0), 0x45);
    assert_int_equal(get_be<std::uint32_t>(h, 12), 0x7f000001);
    assert_int_equal(get_be<std::uint32_t>(h, 16), 0x7f000001);
  }
  // Ten messages before the first receive.
  for (std::uint64_t i = 0; i < 10; ++i)
    assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, static_cast<std::uint32_t>(i))}, {.id = i}), 0);
  for (std::uint32_t i = 0; i < 10; ++i) {
    assert_int_equal(b.receive({b.sge(0, 100)}), 0);
    expect_receive(b, a, i);
    expect_done(a, IBV_WC_SEND, i);
  }
  assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 65464)}), EINVAL);
  assert_int_equal(a.send(ah, b.qp->number(), {}, {.opcode = IBV_WR_SEND_WITH_INV}), EINVAL);
  AddressHandleObject group = a.address("::ffff:239.1.1.1");
  assert_int_equal(a.send(group, 0xffffff, {}), EINVAL);
  assert_int_equal(attach_group(*a.qp, gid_of("::ffff:239.1.1.1")), EINVAL);
}

// A host is asked at two of its addresses, by two queue pairs or by one: each answer leaves from the address that was
// asked, whichever came first.
void two_addresses_of_one_host(void**) {
  constexpr const char* kAddresses[] = {"::ffff:127.0.0.1", "::ffff:127.0.0.2"};
  for (const std::size_t first : {0u, 1u}) {
    RdSide a, b, s;
    unsigned seed = 0;
    const auto ask = [&](RdSide& from, const char* at) {
      AddressHandleObject ah = from.address(at);
      from.fill(0, 5000, ++seed);
      assert_int_equal(s.receive({s.sge(0, 5000)}), 0);
      assert_int_equal(from.request(ah, s.qp->number(), {.sges = {from.sge(0, 5000)}}), 0);
      expect_done(from, IBV_WC_SEND);
      expect_message(s, from, 5000);
      assert_true(s.filled(0, 5000, seed));
    };
    ask(a, kAddresses[first]);
    ask(b, kAddresses[1 - first]);
    ask(a, kAddresses[1 - first]);
    ask(a, kAddresses[first]);
  }
}

// A path without users stays what it was for who opens it again and knows no other, even where others would be swept
// away for it.
void a_path_is_opened_again(void**) {
  RdPaths paths;
  const auto name = [](unsigned n) {
    RdPaths::Name out{};
    out.ip[15] = static_cast<std::byte>(n);
    return out;
  };
  for (unsigned n = 0; n < 64; ++n) {
    RdPath way;
    way.to.to.sin6_family = AF_INET6;
    way.to.ttl = static_cast<std::uint8_t>(n);
    paths.open(name(n), &way);
  }
  paths.close(name(7));
  const RdPath& again = paths.open(name(7), nullptr);
  assert_int_equal(again.to.to.sin6_family, AF_INET6);
  assert_int_equal(again.to.ttl, 7);
  assert_int_equal(again.users, 1);
  // One that nobody uses is swept when another comes.
  paths.close(name(8));
  paths.open(name(64), &again);
  assert_null(paths.find(name(8)));
  assert_non_null(paths.find(name(7)));
}

// What stands for an address of ours in a key.
void numbers_of_addresses(void**) {
  std::set<std::uint32_t> numbers;
  in6_addr a = address_of(gid_of("::ffff:0.0.0.0"));
  constexpr unsigned kAddresses = 100'000;
  for (unsigned n = 0; n < kAddresses; ++n) {
    const std::uint32_t v4 = htonl(n * 40503u);
    std::memcpy(a.s6_addr + 12, &v4, sizeof v4);
    numbers.insert(RdPaths::local_of(a));
  }
  assert_int_equal(numbers.size(), kAddresses);
  const auto number = [](const char* text) { return RdPaths::local_of(address_of(gid_of(text))); };
  assert_int_not_equal(number("2001:db8:0:1::2"), number("2001:db8:0:2::1"));
  assert_int_not_equal(number("fe80::1"), number("fd88::1"));
}

// A queue pair that has gone says so: what waits for it fails at once, all of it, in order.
void gone(void**) {
  RdSide a;
  AddressHandleObject ah = a.address();
  for (int round = 0; round < 10; ++round) {
    std::uint32_t number;
    {
      RdSide b;
      number = b.qp->number();
    }
    for (std::uint64_t i = 0; i < 5; ++i) assert_int_equal(a.request(ah, number, {.id = i}), 0);
    for (std::uint64_t i = 0; i < 5; ++i) expect_done(a, IBV_WC_SEND, i, IBV_WC_RETRY_EXC_ERR);
  }
}

// Holds: RD-7
// A peer that does not exist costs its own requests their success, after some time, and nobody else anything.
void unreachable(void**) {
  RdSide a, b;
  AddressHandleObject ah = a.address();
  const RawPeer silent;
  const std::uint32_t nobody = 0x10000 | silent.port();
  for (std::uint64_t i = 0; i < 3; ++i) assert_int_equal(a.request(ah, nobody, {.id = i}), 0);
  for (std::uint64_t i = 10; i < 300; ++i) {
    assert_int_equal(b.receive({}, i), 0);
    assert_int_equal(a.request(ah, b.qp->number(), {.id = i}), 0);
    expect_done(a, IBV_WC_SEND, i);
    expect_message(b, a, 0, i);
  }
  for (std::uint64_t i = 0; i < 3; ++i) expect_done(a, IBV_WC_SEND, i, IBV_WC_RETRY_EXC_ERR);
  assert_int_equal(a.state(), IBV_QPS_RTS);
}

}  // namespace
}  // namespace ewarp::test

int main() {
  setenv("ETHERWARP_INVALIDATE_REGIONS", "yes", 1);  // immediate_and_invalidate()
  using namespace ewarp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(sends_of_all_sizes),
      cmocka_unit_test(pieces),
      cmocka_unit_test(over_ipv6),
      cmocka_unit_test(immediate_and_invalidate),
      cmocka_unit_test(one_sided),
      cmocka_unit_test(atomics),
      cmocka_unit_test(deep_queues),
      cmocka_unit_test(to_itself),
      cmocka_unit_test(faults_are_of_one_request),
      cmocka_unit_test(refused_posts),
      cmocka_unit_test(receives_come_late),
      cmocka_unit_test(shared_receives),
      cmocka_unit_test(flush),
      cmocka_unit_test(destroyed_while_busy),
      cmocka_unit_test(many_peers),
      cmocka_unit_test(drained),
      cmocka_unit_test(progress_without_polling),
      cmocka_unit_test(memory_that_goes_while_it_is_read),
      cmocka_unit_test(reliable_ud),
      cmocka_unit_test(two_addresses_of_one_host),
      cmocka_unit_test(a_path_is_opened_again),
      cmocka_unit_test(numbers_of_addresses),
      cmocka_unit_test(gone),
      cmocka_unit_test(unreachable),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
