// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// UD queue pairs: states, what is dropped, whose fault it was, and what a peer may send without harm.
#include <sys/mman.h>

#include <cerrno>
#include <chrono>

#include "tests/verbs/datagram_expect.h"

namespace ewarp::test {
namespace {

// Holds: UD-4, UD-5
void dropped_and_counted(void**) {
  using llp::DatagramDrop;
  DatagramSide a, b;
  AddressHandleObject ah = a.address();
  const auto& page = stats::page().datagrams.drops;
  const auto expect = [&](DatagramDrop why, auto&& act) {
    const auto before = drops(why);
    act();
    expect_send(a);  // the sender never learns
    assert_true(counted(page[static_cast<std::size_t>(why)], before, 1));
  };
  expect(DatagramDrop::no_receive, [&] { assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 9)}), 0); });
  assert_int_equal(b.receive({b.sge(0, 48)}), 0);
  expect(DatagramDrop::too_long, [&] { assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 9)}), 0); });
  expect(DatagramDrop::qkey, [&] {
    DatagramSide::Sending how;
    how.qkey = 7;
    assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 8)}, how), 0);
  });
  expect(DatagramDrop::qp,
         [&] { assert_int_equal(a.send(ah, (b.qp->number() + (77 << 16)) & 0xffffff, {a.sge(0, 8)}), 0); });
  // The receive is still there.
  assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 8)}), 0);
  expect_send(a);
  expect_receive(b, a, 8);
  assert_int_equal(b.state(), IBV_QPS_RTS);
  // In INIT nothing is received.
  assert_int_equal(b.modify(IBV_QPS_RESET), 0);
  b.go(IBV_QPS_INIT);
  assert_int_equal(b.receive({b.sge(0, 100)}), 0);
  expect(DatagramDrop::qp, [&] { assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 8)}), 0); });
}

// Holds: UD-6
// Every octet of a good datagram changed, and much that never was one: dropped, counted, nothing placed.
void hostile_datagrams(void**) {
  DatagramSide b;
  RawPeer peer;
  std::memset(b.at(0), 0x5a, 1000);
  assert_int_equal(b.receive({b.sge(0, 500)}), 0);
  const auto total = [] {
    std::uint64_t n = 0;
    for (const auto& c : stats::page().datagrams.drops) n += c;
    return n;
  };
  const auto wait_for = [&](std::uint64_t n) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (total() < n && std::chrono::steady_clock::now() < until) poll(nullptr, 0, 1);
    return total() == n;
  };
  std::vector<std::byte> good(64);
  std::vector<std::byte> segment(23, std::byte{'x'});
  put_be<std::uint16_t>(segment, 0, 0x4143);
  for (std::size_t i = 2; i < 18; ++i) segment[i] = std::byte{0};
  put_be<std::uint32_t>(segment, 10, 1);
  const std::size_t header = llp::UdSend{kQkey, {}}.emit(good, b.qp->number(), 0x020304);
  good.resize(llp::finish_datagram(good, header, segment));
  std::uint64_t sent = total();
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto changed = good;
    changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    if (bit / 8 == 1 && (changed[1] & std::byte{0x40}) != std::byte{0}) continue;  // asks for no CRC: below
    peer.send(b.qp->number(), changed);
    ++sent;
    if (bit % 64 == 63) assert_true(wait_for(sent));
  }
  for (std::size_t n = 0; n < good.size(); ++n) {
    peer.send(b.qp->number(), Octets(good).first(n));
    ++sent;
  }
  assert_true(wait_for(sent));
  // Well-formed datagrams of other kinds, and segments that do not belong here.
  const auto send_segment = [&](auto change) {
    auto s = segment;
    change(s);
    std::vector<std::byte> out(128);
    const std::size_t h = llp::UdSend{kQkey, {}}.emit(out, b.qp->number(), 0x020304);
    out.resize(llp::finish_datagram(out, h, s));
    peer.send(b.qp->number(), out);
    ++sent;
  };
  using Segment = std::vector<std::byte>;
  send_segment([](Segment& s) { s[0] = std::byte{0xc1}; });           // tagged
  send_segment([](Segment& s) { s[0] = std::byte{0x01}; });           // not the last
  send_segment([](Segment& s) { s[0] = std::byte{0x42}; });           // DDP version
  send_segment([](Segment& s) { s[1] = std::byte{0x03}; });           // RDMAP version
  send_segment([](Segment& s) { put_be<std::uint32_t>(s, 6, 1); });   // queue
  send_segment([](Segment& s) { put_be<std::uint32_t>(s, 14, 4); });  // MO
  send_segment([](Segment& s) { s[1] = std::byte{0x44}; });           // Send with Invalidate
  send_segment([](Segment& s) { s[1] = std::byte{0x40}; });           // Write
  send_segment([](Segment& s) { s.resize(17); });
  send_segment([](Segment& s) { s.clear(); });
  for (const int type : {2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 3, 4}) {
    std::vector<std::byte> out(80);
    const llp::DatagramPrefix p{static_cast<llp::DatagramType>(type), 0, 14, 0, b.qp->number(), 0x020304};
    p.emit(MutableOctets(out).first<12>());
    const bool has_segment = type < 10;
    out.resize(llp::finish_datagram(out, 56, has_segment ? std::optional<Octets>(Octets{}) : std::nullopt));
    peer.send(b.qp->number(), out);
    ++sent;
  }
  assert_true(wait_for(sent));
  for (std::size_t i = 0; i < 1000; ++i) assert_int_equal(std::to_integer<int>(*b.at(i)), 0x5a);
  assert_int_equal(b.state(), IBV_QPS_RTS);
  // The good one still arrives, and without its CRC too: it comes from this host.
  peer.send(b.qp->number(), good);
  ibv_wc wc = b.wait();
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  assert_int_equal(wc.src_qp, 0x020304);
  assert_int_equal(wc.byte_len, 45);
  assert_int_equal(b.receive({b.sge(0, 500)}), 0);
  std::vector<std::byte> bare(64);
  const std::size_t h = llp::UdSend{kQkey, {}}.emit(bare, b.qp->number(), 0x020304, false);
  bare.resize(llp::finish_datagram(bare, h, segment, false));
  peer.send(b.qp->number(), bare);
  assert_int_equal(b.wait().status, IBV_WC_SUCCESS);
  assert_true(total() == sent);
}

// Who answers a sender without a port gets no error of its own: what comes from such a number is dropped, and what goes
// there is lost.
void numbers_without_a_port(void**) {
  constexpr std::uint32_t kNobody = 0x010000;
  DatagramSide b;
  RawPeer peer;
  const auto from = [&](std::uint32_t source) {
    std::vector<std::byte> out(64), segment(23);
    put_be<std::uint16_t>(segment, 0, 0x4143);
    put_be<std::uint32_t>(segment, 10, 1);
    const std::size_t header = llp::UdSend{kQkey, {}}.emit(out, b.qp->number(), source);
    out.resize(llp::finish_datagram(out, header, segment));
    return out;
  };
  assert_int_equal(b.receive({b.sge(0, 500)}), 0);
  const auto& dropped = stats::page().datagrams.drops[static_cast<std::size_t>(llp::DatagramDrop::qp)];
  const auto before = drops(llp::DatagramDrop::qp);
  peer.send(b.qp->number(), from(kNobody));
  assert_true(counted(dropped, before, 1));
  peer.send(b.qp->number(), from(kNobody | peer.port()));
  ibv_wc wc = b.wait();
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  assert_int_equal(wc.src_qp, kNobody | peer.port());
  // The same from this side: one alone, and one in the midst of others.
  AddressHandleObject ah = b.address();
  const auto lost = stats::page().datagrams.tx_lost.load();
  assert_int_equal(b.send(ah, kNobody, {b.sge(0, 8)}), 0);
  expect_send(b);
  assert_int_equal(stats::page().datagrams.tx_lost - lost, 1);
  for (const std::uint64_t id : {1u, 2u, 3u}) {
    assert_int_equal(b.receive({b.sge(0, 500)}, 100 + id), 0);
    const std::uint32_t to = id == 2 ? kNobody : b.qp->number();
    assert_int_equal(b.send(ah, to, {b.sge(600, 8)}, {.id = id}), 0);
  }
  std::uint64_t sent = 0, received = 100;
  for (int i = 0; i < 5; ++i) {
    wc = b.wait();
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    const std::uint64_t expected = wc.opcode == IBV_WC_SEND ? ++sent : ++received;
    assert_int_equal(wc.wr_id, expected);
  }
  assert_int_equal(sent, 3);
  assert_int_equal(stats::page().datagrams.tx_lost - lost, 2);
  assert_int_equal(b.state(), IBV_QPS_RTS);
}

// Holds: UD-11
// Told once what was wrong, ten times a second at most; a report is counted and answered by nobody.
void error_reports_are_limited(void**) {
  DatagramSide b;
  RawPeer peer;
  assert_int_equal(b.receive({b.sge(0, 41)}), 0);
  std::vector<std::byte> segment(23, std::byte{0});
  put_be<std::uint16_t>(segment, 0, 0x4143);
  put_be<std::uint32_t>(segment, 10, 7);
  std::vector<std::byte> out(64);
  const std::size_t h = llp::UdSend{kQkey, {}}.emit(out, b.qp->number(), 0x020304);
  out.resize(llp::finish_datagram(out, h, segment));
  stats::Datagrams& counters = stats::page().datagrams;
  const auto reports = counters.errors_sent + counters.errors_suppressed;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 60; ++i) peer.send(b.qp->number(), out);
  const auto until = begin + std::chrono::milliseconds(kPatience);
  while (counters.errors_sent + counters.errors_suppressed < reports + 60 && std::chrono::steady_clock::now() < until)
    poll(nullptr, 0, 1);
  assert_true(counters.errors_sent + counters.errors_suppressed == reports + 60);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  int got = 0;
  for (auto octets = peer.receive(200); !octets.empty(); octets = peer.receive(50)) {
    ++got;
    const auto d = llp::parse_datagram(octets, false);
    assert_true(d.ok());
    assert_true(d.value().prefix.type == llp::DatagramType::ud_error);
    assert_int_equal(d.value().prefix.destination, 0x020304);
    assert_int_equal(d.value().prefix.source, b.qp->number());
    assert_int_equal(llp::UdError::parse(d.value()).msn, 7);
    // Terminate: layer DDP, type 2, code 5; M and D; the segment's length, its header.
    const Octets s = d.value().segment;
    assert_int_equal(s.size(), 18 + 4 + 2 + 18);
    assert_int_equal(get_be<std::uint16_t>(s, 0), 0x4147);
    assert_int_equal(get_be<std::uint32_t>(s, 6), 2);
    assert_int_equal(get_be<std::uint32_t>(s, 10), got);
    assert_int_equal(get_be<std::uint32_t>(s, 18), 0x1205c000);
    assert_int_equal(get_be<std::uint16_t>(s, 22), 23);
    assert_memory_equal(&s[24], segment.data(), 18);
  }
  assert_true(got >= 1);
  assert_true(got <= 10 * (2 + seconds.count()));  // ten in a window of a second
  // A report to a QP is counted, and nothing else.
  const auto received = counters.errors_received.load();
  std::vector<std::byte> report(80);
  report.resize(llp::finish_datagram(report, llp::UdError{1}.emit(report, b.qp->number(), 0x020304), segment));
  peer.send(b.qp->number(), report);
  assert_true(counted(counters.errors_received, received, 1));
  assert_true(peer.receive(20).empty());
  assert_int_equal(b.state(), IBV_QPS_RTS);
}

// Holds: UD-13
void bad_memory_ends_the_send_queue_only(void**) {
  DatagramSide a, b;
  AddressHandleObject ah = a.address();
  ibv_sge bad = a.sge(0, 100);
  bad.lkey ^= 0x100;
  DatagramSide::Sending quiet;
  quiet.flags = 0;
  assert_int_equal(b.receive({b.sge(0, 500)}, 1), 0);
  {
    ibv_send_wr wr[3]{}, *refused = nullptr;
    ibv_sge good = a.sge(0, 10);
    for (int i = 0; i < 3; ++i) {
      wr[i].wr_id = static_cast<std::uint64_t>(10 + i);
      wr[i].opcode = IBV_WR_SEND;
      wr[i].sg_list = i == 1 ? &bad : &good;
      wr[i].num_sge = 1;
      wr[i].next = i < 2 ? &wr[i + 1] : nullptr;
      wr[i].wr.ud.ah = &ah;
      wr[i].wr.ud.remote_qpn = b.qp->number();
      wr[i].wr.ud.remote_qkey = kQkey;
    }
    assert_int_equal(a.qp->post_send(wr, &refused), 0);
  }
  // The first went out unsignalled; the second is to blame, the third is flushed.
  ibv_wc wc = a.wait();
  assert_int_equal(wc.wr_id, 11);
  assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
  wc = a.wait();
  assert_int_equal(wc.wr_id, 12);
  assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
  assert_int_equal(a.state(), IBV_QPS_SQE);
  expect_receive(b, a, 10, 1);
  assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 1)}, quiet), 0);
  assert_int_equal(a.wait().status, IBV_WC_WR_FLUSH_ERR);
  // Receiving goes on, and the way back to RTS is open.
  AddressHandleObject back = b.address();
  assert_int_equal(a.receive({a.sge(5000, 100)}), 0);
  assert_int_equal(b.send(back, a.qp->number(), {b.sge(0, 4)}, quiet), 0);
  expect_receive(a, b, 4);
  assert_int_equal(a.modify(IBV_QPS_RTS), 0);
  assert_int_equal(b.receive({b.sge(0, 500)}, 2), 0);
  assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 4)}), 0);
  expect_send(a);
  expect_receive(b, a, 4, 2);
}

// Registered memory that its owner unmapped, on either side and in every size class.
void memory_that_went_away(void**) {
  for (const std::uint32_t n : {100u, 5000u}) {
    DatagramSide a, b;
    AddressHandleObject ah = a.address();
    void* page = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MemoryRegion* mr = nullptr;
    assert_int_equal(
        memory().add(a.pd, page, 8192, reinterpret_cast<std::uintptr_t>(page), IBV_ACCESS_LOCAL_WRITE, &mr), 0);
    munmap(page, 8192);
    assert_int_equal(a.send(ah, b.qp->number(), {{reinterpret_cast<std::uintptr_t>(page), n, mr->stag()}}), 0);
    assert_int_equal(a.wait().status, IBV_WC_LOC_PROT_ERR);
    assert_int_equal(a.state(), IBV_QPS_SQE);
    memory().remove(mr);
  }
  DatagramSide a, b;
  AddressHandleObject ah = a.address();
  ibv_sge bad = b.sge(0, 500);
  bad.lkey ^= 0x100;
  assert_int_equal(b.receive({bad}, 7), 0);
  assert_int_equal(b.receive({b.sge(0, 500)}, 8), 0);
  assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 4)}), 0);
  ibv_wc wc = b.wait();
  assert_int_equal(wc.wr_id, 7);
  assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
  wc = b.wait();
  assert_int_equal(wc.wr_id, 8);
  assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
  assert_int_equal(b.state(), IBV_QPS_ERR);
}

// The pages go while their CRC is computed: a protection error, or the datagram was sent before. On a busy machine the
// thread that takes them away may not run for a while: rounds go on until it did.
void memory_that_goes_while_it_is_read(void**) {
  constexpr std::uint32_t kOctets = 32 * 1024;
  FlickeringSource<DatagramSide> source(kOctets);
  auto& [a, b, ah, pages] = source;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  int refused = 0;
  for (int round = 0; round < 2000 || refused == 0; ++round) {
    assert_true(round < 2000 || std::chrono::steady_clock::now() < until);
    assert_int_equal(a.send(ah, b.qp->number(), {pages.sge(kOctets)}), 0);
    const ibv_wc wc = a.wait();
    if (wc.status == IBV_WC_SUCCESS) continue;
    assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
    ++refused;
    assert_int_equal(a.modify(IBV_QPS_RTS), 0);
  }
  pages.stay();
  assert_int_equal(b.receive({b.sge(0, kGrhOctets + kOctets)}), 0);
  assert_int_equal(a.send(ah, b.qp->number(), {pages.sge(kOctets)}), 0);
  expect_send(a);
  expect_receive(b, a, kOctets);
}

void states_by_mask(void**) {
  DatagramSide a(nullptr, IBV_QPS_RESET);
  constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  AddressHandleObject ah = a.address();
  assert_int_equal(a.modify(IBV_QPS_RTR), EINVAL);
  assert_int_equal(a.modify(IBV_QPS_ERR), EINVAL);
  assert_int_equal(a.receive({}), EINVAL);
  for (const int missing : {IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY})
    assert_int_equal(a.modify(IBV_QPS_INIT, kInit & ~missing), EINVAL);
  assert_int_equal(a.modify(IBV_QPS_INIT, kInit | IBV_QP_ACCESS_FLAGS), EINVAL);
  assert_int_equal(a.state(), IBV_QPS_RESET);
  assert_int_equal(a.modify(IBV_QPS_INIT, kInit), 0);
  assert_int_equal(a.modify(IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_QKEY), 0);
  assert_int_equal(a.receive({a.sge(0, 100)}), 0);
  assert_int_equal(a.send(ah, a.qp->number(), {}), EINVAL);
  assert_int_equal(a.modify(IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN), EINVAL);
  assert_int_equal(a.modify(IBV_QPS_RTR, IBV_QP_STATE | IBV_QP_AV), EINVAL);
  assert_int_equal(a.modify(IBV_QPS_RTR), 0);
  assert_int_equal(a.send(ah, a.qp->number(), {}), EINVAL);
  assert_int_equal(a.modify(IBV_QPS_RTS), EINVAL);  // SQ_PSN is missing
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.cur_qp_state = IBV_QPS_RTS;
  assert_int_equal(a.qp->modify(attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_CUR_STATE), EINVAL);
  attr.cur_qp_state = IBV_QPS_RTR;
  attr.sq_psn = 0x123;
  assert_int_equal(a.qp->modify(attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_CUR_STATE), 0);
  assert_int_equal(a.modify(IBV_QPS_SQE), EINVAL);
  ibv_qp_init_attr init{};
  attr.qkey = 99;
  assert_int_equal(a.qp->modify(attr, IBV_QP_QKEY), 0);
  assert_int_equal(a.qp->query(attr, init), 0);
  assert_int_equal(attr.qkey, 99);
  assert_int_equal(attr.sq_psn, 0x123);
  assert_int_equal(init.qp_type, IBV_QPT_UD);
  // SQD: what is posted waits.
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  assert_int_equal(a.qp->modify(attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  assert_int_equal(a.event(), IBV_EVENT_SQ_DRAINED);
  DatagramSide::Sending how;
  how.qkey = 99;
  assert_int_equal(a.send(ah, a.qp->number(), {a.sge(200, 4)}, how), 0);
  ibv_wc wc{};
  assert_int_equal(a.cq.poll(1, &wc), 0);
  assert_int_equal(a.modify(IBV_QPS_RTS), 0);
  expect_send(a);
  expect_receive(a, a, 4);
  // ERR: all comes back, also what is posted later.
  assert_int_equal(a.receive({a.sge(0, 100)}, 5), 0);
  assert_int_equal(a.modify(IBV_QPS_ERR), 0);
  assert_int_equal(a.wait().status, IBV_WC_WR_FLUSH_ERR);
  assert_int_equal(a.receive({a.sge(0, 100)}, 6), 0);
  wc = a.wait();
  assert_int_equal(wc.wr_id, 6);
  assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
  how.flags = 0;
  assert_int_equal(a.send(ah, a.qp->number(), {}, how), 0);
  assert_int_equal(a.wait().status, IBV_WC_WR_FLUSH_ERR);
  assert_int_equal(a.modify(IBV_QPS_RTS), EINVAL);
  // RESET: nothing comes back, and the QP is as new.
  assert_int_equal(a.receive({a.sge(0, 100)}, 7), 0);
  assert_int_equal(a.modify(IBV_QPS_RESET), 0);
  assert_int_equal(a.cq.poll(1, &wc), 0);
  a.go(IBV_QPS_RTS);
  assert_int_equal(a.receive({a.sge(0, 100)}), 0);
  assert_int_equal(a.send(ah, a.qp->number(), {a.sge(200, 4)}), 0);
  expect_send(a);
  expect_receive(a, a, 4);
}

void first_message_in_rtr_is_told(void**) {
  DatagramSide a, b(nullptr, IBV_QPS_RTR);
  AddressHandleObject ah = a.address();
  for (int i = 0; i < 2; ++i) {
    assert_int_equal(b.receive({b.sge(0, 100)}), 0);
    assert_int_equal(a.send(ah, b.qp->number(), {a.sge(0, 4)}), 0);
    expect_receive(b, a, 4);
  }
  assert_int_equal(b.event(), IBV_EVENT_COMM_EST);
  assert_int_equal(b.event(0), -1);
}

void completion_queue_overflow(void**) {
  DatagramSide a(nullptr, IBV_QPS_RTS, 2);
  AddressHandleObject ah = a.address();
  for (int i = 0; i < 3; ++i) assert_int_equal(a.send(ah, a.qp->number(), {a.sge(0, 4)}), 0);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (a.state() != IBV_QPS_ERR && std::chrono::steady_clock::now() < until) poll(nullptr, 0, 1);
  assert_int_equal(a.state(), IBV_QPS_ERR);
  assert_int_equal(a.event(), IBV_EVENT_CQ_ERR);
  assert_int_equal(a.event(), IBV_EVENT_QP_FATAL);
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(dropped_and_counted),
      cmocka_unit_test(hostile_datagrams),
      cmocka_unit_test(numbers_without_a_port),
      cmocka_unit_test(error_reports_are_limited),
      cmocka_unit_test(bad_memory_ends_the_send_queue_only),
      cmocka_unit_test(memory_that_went_away),
      cmocka_unit_test(states_by_mask),
      cmocka_unit_test(first_message_in_rtr_is_told),
      cmocka_unit_test(completion_queue_overflow),
      cmocka_unit_test(memory_that_goes_while_it_is_read),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
