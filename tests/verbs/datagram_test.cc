// UD queue pairs: what is sent arrives once, whole and with its address; work requests end as they should.
#include "tests/verbs/datagram_sides.h"

#include <sys/mman.h>

#include <cerrno>
#include <set>
#include <thread>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

namespace ewarp::test {
namespace {

constexpr std::size_t kGrhOctets = 40;

void expect_send(DatagramSide& s, std::uint64_t id = 1) {
  const ibv_wc wc = s.wait();
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  assert_int_equal(wc.opcode, IBV_WC_SEND);
  assert_int_equal(wc.wr_id, id);
  assert_int_equal(wc.qp_num, s.qp->number());
}

ibv_wc expect_receive(DatagramSide& r, const DatagramSide& from, std::uint32_t length, std::uint64_t id = 100) {
  const ibv_wc wc = r.wait();
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  assert_int_equal(wc.opcode, IBV_WC_RECV);
  assert_int_equal(wc.wr_id, id);
  assert_int_equal(wc.byte_len, kGrhOctets + length);
  assert_int_equal(wc.src_qp, from.qp->number());
  assert_true((wc.wc_flags & IBV_WC_GRH) != 0);
  return wc;
}

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
  assert_int_equal(poll(&p, 1, 5000), 1);
  expect_receive(b, a, 2);
  ibv_wc none{};
  assert_int_equal(a.cq.poll(1, &none), 0);  // unsignalled
}

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

  bool v6 = false;
  for (const ibv_gid& g : any_device().gids()) v6 |= !llp::is_v4(address_of(g));
  if (!v6) return;
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
  for (int i = 0; i < 60; ++i) peer.send(b.qp->number(), out);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (counters.errors_sent + counters.errors_suppressed < reports + 60 && std::chrono::steady_clock::now() < until)
    poll(nullptr, 0, 1);
  assert_true(counters.errors_sent + counters.errors_suppressed == reports + 60);
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
  assert_true(got >= 1 && got <= 20);  // two windows at most
  // A report to a QP is counted, and nothing else.
  const auto received = counters.errors_received.load();
  std::vector<std::byte> report(80);
  report.resize(llp::finish_datagram(report, llp::UdError{1}.emit(report, b.qp->number(), 0x020304), segment));
  peer.send(b.qp->number(), report);
  assert_true(counted(counters.errors_received, received, 1));
  assert_true(peer.receive(20).empty());
  assert_int_equal(b.state(), IBV_QPS_RTS);
}

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
  to_itself(nullptr);
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
    ib_uverbs_async_event_desc e{};
    pollfd p{events->read_fd(), POLLIN, 0};
    assert_int_equal(poll(&p, 1, 5000), 1);
    assert_int_equal(read(p.fd, &e, sizeof e), sizeof e);
    assert_int_equal(e.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  }
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
  assert_int_equal(poll(&p, 1, 5000), 1);
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
      cmocka_unit_test(address_handles),
      cmocka_unit_test(to_itself),
      cmocka_unit_test(dropped_and_counted),
      cmocka_unit_test(hostile_datagrams),
      cmocka_unit_test(error_reports_are_limited),
      cmocka_unit_test(bad_memory_ends_the_send_queue_only),
      cmocka_unit_test(memory_that_went_away),
      cmocka_unit_test(states_by_mask),
      cmocka_unit_test(first_message_in_rtr_is_told),
      cmocka_unit_test(shared_receives),
      cmocka_unit_test(completion_queue_overflow),
      cmocka_unit_test(many_senders),
      cmocka_unit_test(long_lists_go_out_whole),
      cmocka_unit_test(numbers_are_addresses),
      cmocka_unit_test(progress_without_polling),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
