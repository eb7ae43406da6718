// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// UD queue pairs: what is sent arrives once, whole and with its address; work requests end as they should.
#include <cerrno>
#include <set>
#include <thread>

#include "tests/verbs/datagram_expect.h"

namespace ewarp::test {
namespace {

// Holds: UD-2, UD-8
void messages_of_all_sizes(void**) {
  DatagramSide a, b;
  AddressHandleObject ah = a.address();
  for (const std::uint32_t n : {0u, 1u, 7u, 511u, 512u, 513u, 1472u, 4096u, 9000u, 65000u, 65463u}) {
    a.fill(0, n, n);
    assert_int_equal(b.receive({b.sge(0, 70000)}), 0);
    assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, n)}), 0);
    expect_send(a);
    const ibv_wc wc = expect_receive(b, a, n);
    assert_false((wc.wc_flags & IBV_WC_WITH_IMM) != 0);
    assert_true(b.filled(kGrhOctets, n, n));
  }
  assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 65464)}), EINVAL);
}

// Holds: UD-2
// Many pieces on either side, cut differently; inline; without pieces.
void pieces(void**) {
  DatagramSide a, b;
  AddressHandleObject ah = a.address();
  for (const std::uint32_t n : {100u, 6000u}) {
    a.fill(0, n, 3);
    const std::uint32_t third = n / 3;
    std::memset(b.at(0), 0, 20000);
    assert_int_equal(b.receive({b.sge(0, 10), b.sge(1000, 0), b.sge(2000, 35), b.sge(3000, 17), b.sge(4000, 9000)}), 0);
    assert_int_equal(a.send(ah, b.qp->number(),
                            {a.sge(0, third), a.sge(5, 0), a.sge(third, third), a.sge(2 * third, n - 2 * third)}),
                     0);
    expect_send(a);
    expect_receive(b, a, n);
    assert_true(b.filled(2030, 5, 3));
    assert_true(b.filled(3000, 17, 3, 5));
    assert_true(b.filled(4000, n - 22, 3, 22));
  }
  for (const std::uint32_t n : {0u, 20u, 256u}) {
    a.fill(0, n, 9);
    assert_int_equal(b.receive({b.sge(0, 400)}), 0);
    // Inline data needs no key, and may change at once.
    DatagramSide::Sending how;
    how.flags |= IBV_SEND_INLINE;
    ibv_sge s = a.sge(0, n);
    s.lkey = 0;
    assert_int_equal(a.send(ah, b.qp->number(), {s}, how), 0);
    std::memset(a.at(0), 0, n);
    expect_send(a);
    expect_receive(b, a, n);
    assert_true(b.filled(kGrhOctets, n, 9));
  }
  DatagramSide::Sending how;
  how.flags |= IBV_SEND_INLINE;
  assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 257)}, how), EINVAL);
}

// Holds: VRB-28
void immediate_solicited_unsignalled(void**) {
  DatagramSide a, b;
  AddressHandleObject ah = a.address();
  DatagramSide::Sending how;
  how.opcode = IBV_WR_SEND_WITH_IMM;
  how.immediate = 0xdeadbeef;
  assert_int_equal(b.receive({b.sge(0, 100)}), 0);
  assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 5)}, how), 0);
  expect_send(a);
  ibv_wc wc = expect_receive(b, a, 5);
  assert_true((wc.wc_flags & IBV_WC_WITH_IMM) != 0);
  assert_int_equal(wc.imm_data, htobe32(0xdeadbeef));

  // A thread that armed for solicited events sleeps through the first, and is woken by the second.
  assert_int_equal(b.receive({b.sge(0, 100)}), 0);
  assert_int_equal(b.receive({b.sge(0, 100)}), 0);
  b.cq.arm(true);
  how = {};
  how.flags = 0;
  assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 1)}, how), 0);
  pollfd p{b.completions->read_fd(), POLLIN, 0};
  expect_receive(b, a, 1);
  assert_int_equal(poll(&p, 1, 0), 0);
  b.cq.arm(true);
  how.flags = IBV_SEND_SOLICITED;
  assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 2)}, how), 0);
  assert_int_equal(poll(&p, 1, test::kPatience), 1);
  expect_receive(b, a, 2);
  ibv_wc none{};
  assert_int_equal(a.cq.poll(1, &none), 0);  // unsignalled
}

// Holds: UD-3
// The IP header in front of the payload: what ibv_init_ah_from_wc() reads.
void grh(void**) {
  DatagramSide a, b;
  AddressHandleObject ah = a.address("::ffff:127.0.0.1", 0x2b, 33);
  assert_int_equal(b.receive({b.sge(0, 100)}), 0);
  std::memset(b.at(0), 0xff, 40);
  assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 3)}), 0);
  expect_receive(b, a, 3);
  const Octets h(b.at(20), 20);
  for (std::size_t i = 0; i < 20; ++i) assert_int_equal(std::to_integer<int>(*b.at(i)), 0);
  assert_int_equal(get_be<std::uint8_t>(h, 0), 0x45);
  assert_int_equal(get_be<std::uint8_t>(h, 1), 0x28);  // without the ECN bits
  assert_int_equal(get_be<std::uint16_t>(h, 2), 20 + 8 + 40 + 3);
  assert_int_equal(get_be<std::uint8_t>(h, 8), 33);
  assert_int_equal(get_be<std::uint8_t>(h, 9), 17);
  assert_int_equal(get_be<std::uint32_t>(h, 12), 0x7f000001);
  assert_int_equal(get_be<std::uint32_t>(h, 16), 0x7f000001);
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < 20; i += 2) sum += get_be<std::uint16_t>(h, i);
  assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
}

// Holds: UD-3
void grh_of_ipv6(void**) {
  bool v6 = false;
  for (const ibv_gid& g : any_device().gids()) v6 |= !llp::is_v4(address_of(g));
  if (!v6) {
    print_message("skipped: no IPv6 address on the loopback\n");
    skip();
  }
  DatagramSide a, b;
  AddressHandleObject ah6 = a.address("::1", 0x48, 44);
  assert_int_equal(b.receive({b.sge(0, 100)}), 0);
  assert_int_equal(a.send(ah6, b.qp->number(), {a.sge(0, 3)}), 0);
  expect_receive(b, a, 3);
  const Octets h6(b.at(0), 40);
  assert_int_equal(get_be<std::uint32_t>(h6, 0), 0x64800000);
  assert_int_equal(get_be<std::uint16_t>(h6, 4), 8 + 40 + 3);
  assert_int_equal(get_be<std::uint8_t>(h6, 6), 17);
  assert_int_equal(get_be<std::uint8_t>(h6, 7), 44);
  const ibv_gid loopback = gid_of("::1");
  assert_memory_equal(b.at(8), loopback.raw, 16);
  assert_memory_equal(b.at(24), loopback.raw, 16);
}

// Holds: VRB-22, UD-14
void address_handles(void**) {
  DatagramSide a;
  ibv_ah_attr attr{};
  AddressHandle out;
  assert_int_equal(make_address_handle(a.pd, attr, &out), EINVAL);  // no GID
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = gid_of("::ffff:127.0.0.1");
  assert_int_equal(make_address_handle(a.pd, attr, &out), 0);
  attr.grh.sgid_index = 200;
  assert_int_equal(make_address_handle(a.pd, attr, &out), EINVAL);
  attr.grh.sgid_index = 0;
  attr.port_num = 2;
  assert_int_equal(make_address_handle(a.pd, attr, &out), EINVAL);
  attr.port_num = 1;
  attr.grh.dgid = gid_of("::1");  // GID 0 is IPv4
  assert_int_equal(make_address_handle(a.pd, attr, &out), EINVAL);
  attr.grh.dgid = gid_of("::");
  assert_int_equal(make_address_handle(a.pd, attr, &out), EINVAL);

  // Another protection domain's, none, a QPN of more than 24 bits.
  Pd other(a.context);
  attr.grh.dgid = gid_of("::ffff:127.0.0.1");
  AddressHandleObject foreign{};
  assert_int_equal(make_address_handle(other, attr, &foreign.impl), 0);
  assert_int_equal(a.send(foreign, a.qp->number(), {}), EINVAL);
  AddressHandleObject ah = a.address();
  assert_int_equal(a.send(ah, 0x1000000, {}), EINVAL);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_SEND;
  assert_int_equal(a.qp->post_send(&wr, &bad), EINVAL);
  assert_ptr_equal(bad, &wr);
  DatagramSide::Sending how;
  for (const auto op : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND_WITH_INV, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    how.opcode = op;
    assert_int_equal(a.send(ah, a.qp->number(), {}, how), EINVAL);
  }
}

// Holds: UD-4
// A QP sends to itself, and with its own Q_Key where bit 31 says so.
void to_itself(void**) {
  DatagramSide a;
  AddressHandleObject ah = a.address();
  a.fill(0, 64);
  assert_int_equal(a.receive({a.sge(1000, 200)}), 0);
  DatagramSide::Sending how;
  how.qkey = 0x80000000;
  assert_int_equal(a.send(ah, a.qp->number(), {a.sge(0, 64)}, how), 0);
  expect_send(a);
  expect_receive(a, a, 64);
  assert_true(a.filled(1040, 64));
}

// Holds: UD-5
// One shared receive queue for two QPs; an empty one drops.
void shared_receives(void**) {
  DatagramSide a;
  const auto events = channel(16);
  Context context(any_device(), events);
  Pd pd(context);
  SharedReceiveQueue srq(pd, 1);
  ibv_srq_attr attr{8, 2, 0};
  assert_int_equal(srq.create(attr), 0);
  {
    DatagramSide b(&srq), c(&srq);
    assert_int_equal(b.receive({b.sge(0, 100)}), EINVAL);
    AddressHandleObject ah = a.address();
    const auto before = drops(llp::DatagramDrop::no_receive);
    assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 4)}), 0);
    expect_send(a);
    assert_true(counted(stats::page().datagrams.drops[static_cast<int>(llp::DatagramDrop::no_receive)], before, 1));
    for (std::uint64_t i = 0; i < 2; ++i) {
      ibv_sge s = b.sge(i * 1000, 100);
      ibv_recv_wr wr{i, nullptr, &s, 1}, *bad = nullptr;
      assert_int_equal(srq.post(&wr, &bad), 0);
    }
    assert_int_equal(a.send(ah, c.qp->number(), {a.sge(0, 4)}), 0);
    expect_receive(c, a, 4, 0);
    assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 5)}), 0);
    expect_receive(b, a, 5, 1);
    assert_int_equal(b.modify(IBV_QPS_ERR), 0);
    assert_int_equal(next_event(*events, test::kPatience).first, IBV_EVENT_QP_LAST_WQE_REACHED);
  }
}

// More than the socket takes at once, from several threads: nothing is lost on this host while receives are there, and
// each sender's order is kept.
void many_senders(void**) {
  constexpr unsigned kThreads = 4, kRounds = 400;
  DatagramSide b;
  for (unsigned i = 0; i < 256; ++i) assert_int_equal(b.receive({b.sge(i * 128, 128)}, i), 0);
  std::vector<std::unique_ptr<DatagramSide>> senders;
  for (unsigned t = 0; t < kThreads; ++t) senders.push_back(std::make_unique<DatagramSide>());
  std::atomic<unsigned> received{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      DatagramSide& s = *senders[t];
      AddressHandleObject ah = s.address();
      for (unsigned i = 0; i < kRounds; ++i) {
        while (t * kRounds + i >= kThreads * kRounds || received + 200 < i * kThreads) std::this_thread::yield();
        DatagramSide::Sending how;
        how.opcode = IBV_WR_SEND_WITH_IMM;
        how.immediate = i;
        if (s.send(ah, b.qp->number(), {s.sge(0, 32)}, how) != 0 || s.wait().status != IBV_WC_SUCCESS) std::abort();
      }
    });
  std::vector<std::uint32_t> next(kThreads, 0);
  for (unsigned n = 0; n < kThreads * kRounds; ++n) {
    const ibv_wc wc = b.wait();
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    for (unsigned t = 0; t < kThreads; ++t)
      if (senders[t]->qp->number() == wc.src_qp) assert_int_equal(be32toh(wc.imm_data), next[t]++);
    assert_int_equal(b.receive({b.sge(wc.wr_id * 128, 128)}, wc.wr_id), 0);
    ++received;
  }
  for (std::thread& t : threads) t.join();
  for (const std::uint32_t n : next) assert_int_equal(n, kRounds);
}

void long_lists_go_out_whole(void**) {
  DatagramSide a, b;
  AddressHandleObject ah = a.address();
  for (unsigned i = 0; i < 256; ++i) assert_int_equal(b.receive({b.sge(i * 64, 64)}, i), 0);
  std::vector<ibv_send_wr> wrs(256);
  std::vector<ibv_sge> sges(256);
  for (unsigned i = 0; i < 256; ++i) {
    a.fill(i * 16, 16, i);
    sges[i] = a.sge(i * 16, i % 16 + 1);
    wrs[i] = {};
    wrs[i].wr_id = i;
    wrs[i].next = i < 255 ? &wrs[i + 1] : nullptr;
    wrs[i].sg_list = &sges[i];
    wrs[i].num_sge = 1;
    wrs[i].opcode = IBV_WR_SEND;
    wrs[i].send_flags = i == 255 ? IBV_SEND_SIGNALED : 0;
    wrs[i].wr.ud.ah = &ah;
    wrs[i].wr.ud.remote_qpn = b.qp->number();
    wrs[i].wr.ud.remote_qkey = kQkey;
  }
  ibv_send_wr* bad = nullptr;
  assert_int_equal(a.qp->post_send(wrs.data(), &bad), 0);
  expect_send(a, 255);
  for (unsigned i = 0; i < 256; ++i) {
    expect_receive(b, a, i % 16 + 1, i);
    assert_true(b.filled(i * 64 + 40, i % 16 + 1, i));
  }
}

// Holds: UD-10
// More queue pairs than a port has numbers: each has its own, and is reached by it.
void numbers_are_addresses(void**) {
  std::vector<std::unique_ptr<DatagramSide>> all;
  for (int i = 0; i < 260; ++i) all.push_back(std::make_unique<DatagramSide>());
  std::set<std::uint32_t> numbers;
  std::set<std::uint32_t> ports;
  for (const auto& s : all) {
    numbers.insert(s->qp->number());
    ports.insert(s->qp->number() & 0xffff);
    assert_in_range(s->qp->number() & 0xffff, 1024, 65534);
    assert_int_equal(s->qp->number() >> 24, 0);
  }
  assert_int_equal(numbers.size(), all.size());
  assert_true(ports.size() >= 2);
  AddressHandleObject ah = all[0]->address();
  for (std::size_t i = 1; i < all.size(); i += 37) {
    assert_int_equal(all[i]->receive({all[i]->sge(0, 100)}), 0);
    assert_int_equal(all[0]->send(ah, all[i]->qp->number(), {all[0]->sge(0, 4)}), 0);
    expect_send(*all[0]);
    expect_receive(*all[i], *all[0], 4);
  }
}

// The peer is served while the application does nothing at all.
void progress_without_polling(void**) {
  DatagramSide a, b;
  AddressHandleObject ah = a.address();
  b.cq.arm(false);
  assert_int_equal(b.receive({b.sge(0, 100)}), 0);
  assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 4)}), 0);
  pollfd p{b.completions->read_fd(), POLLIN, 0};
  assert_int_equal(poll(&p, 1, test::kPatience), 1);
  expect_receive(b, a, 4);
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(messages_of_all_sizes),
      cmocka_unit_test(pieces),
      cmocka_unit_test(immediate_solicited_unsignalled),
      cmocka_unit_test(grh),
      cmocka_unit_test(grh_of_ipv6),
      cmocka_unit_test(address_handles),
      cmocka_unit_test(to_itself),
      cmocka_unit_test(shared_receives),
      cmocka_unit_test(many_senders),
      cmocka_unit_test(long_lists_go_out_whole),
      cmocka_unit_test(numbers_are_addresses),
      cmocka_unit_test(progress_without_polling),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
