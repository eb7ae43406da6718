// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// RC queue pairs that are told their peer by ibv_modify_qp(), without rdma_cm (docs/user/byaddr.md). That they do not
// wait for ever: byaddr_expiry_test.cc.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "provider/startup/pair_names.h"
#include "provider/verbs/qp_numbers.h"
#include "tests/llp/nodelay.h"
#include "tests/verbs/by_address.h"
#include "tests/verbs/captured_stderr.h"
#include "tests/verbs/raw_start_up.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

using namespace test::by_address;
using test::Side;
using Clock = std::chrono::steady_clock;

void reset(Side& s) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RESET;
  assert_int_equal(s.qp->modify(a, IBV_QP_STATE), 0);
}

void sleep_ms(int ms) {
  poll(nullptr, 0, ms);
}

// The GIDs of the loopback, one of each family that it has.
std::vector<int> families() {
  std::vector<int> out;
  for (const bool ipv4 : {true, false})
    if (const int gid = gid_index(ipv4); gid >= 0) out.push_back(gid);
  return out;
}

// The end of a test of every family, where one of them was not there.
void needs(std::size_t tried, std::size_t wanted) {
  if (tried == wanted) return;
  print_message("skipped: the loopback has no IPv6 address\n");
  skip();
}

// What a bring-up opened is closed again, if not at once.
void expect_fds(std::size_t want) {
  for (int i = 0; i < test::kPatience / 10 && test::open_files() > want; ++i) sleep_ms(10);
  assert_true(test::open_files() <= want);
}

// --- cases ---

// Holds: VRB-34
void both_orders_and_delays(void**) {
  for (const int gid : families())
    for (const int delay : {0, 1, 30, 300})
      for (const bool swapped : {false, true}) {
        Side a(1 << 14), b(1 << 14);
        Side& first = swapped ? b : a;
        Side& second = swapped ? a : b;
        up(first, number(second), gid);
        assert_int_equal(first.state(), IBV_QPS_RTS);
        sleep_ms(delay);
        up(second, number(first), gid);
        traffic(first, second);
        traffic(second, first);
      }
  needs(families().size(), 2);
}

// Holds: MPA-18
// Of both ends.
void mpa_18_connections_send_at_once(void**) {
  Side a(1 << 14), b(1 << 14);
  up(a, number(b));
  up(b, number(a));
  traffic(a, b);
  if (!test::over_local_streams()) test::expect_nodelay(2);
}

// The side that is connected already waits in RTR; the other's sends wait in RTS.
void rtr_long_before_rts(void**) {
  Side a(1 << 14), b(1 << 14);
  for (Side* s : {&a, &b}) assert_int_equal(to_init(*s), 0);
  assert_int_equal(to_rtr(a, number(b)), 0);
  assert_int_equal(to_rtr(b, number(a)), 0);
  sleep_ms(100);
  for (Side* s : {&a, &b}) assert_int_equal(s->state(), IBV_QPS_RTR);
  assert_int_equal(to_rts(a), 0);
  assert_int_equal(b.receive({b.sge(0, 64)}), 0);
  assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 64)}), 0);
  expect_wc(a, 1);
  expect_wc(b, 100);
  assert_int_equal(to_rts(b), 0);
  traffic(b, a);
}

// Where the QP knows its peer RTR takes sends, as hardware does: before the stream stands and when it does. They end
// with it, too.
void sends_in_rtr(void**) {
  for (const bool swapped : {false, true}) {
    Side a(1 << 14), b(1 << 14);
    Side& early = swapped ? b : a;
    Side& late = swapped ? a : b;
    assert_int_equal(to_init(early), 0);
    assert_int_equal(early.send(IBV_WR_SEND, {early.sge(0, 16)}), EINVAL);
    assert_int_equal(to_rtr(early, number(late)), 0);
    assert_int_equal(
        early.send(IBV_WR_RDMA_WRITE, {early.sge(0, 16)}, late.address(0), late.mr->stag(), IBV_SEND_SIGNALED, 1), 0);
    assert_int_equal(to_init(late), 0);
    assert_int_equal(late.receive({late.sge(0, 16)}), 0);
    assert_int_equal(to_rtr(late, number(early)), 0);
    expect_wc(early, 1);
    assert_int_equal(early.send(IBV_WR_SEND, {early.sge(0, 16)}, 0, 0, IBV_SEND_SIGNALED, 2), 0);
    expect_wc(early, 2);
    expect_wc(late, 100);
    assert_int_equal(early.state(), IBV_QPS_RTR);
    reset(early);
    assert_int_equal(early.send(IBV_WR_SEND, {early.sge(0, 16)}), EINVAL);
  }
}

// RTR that names no peer: nothing brings a stream, so nothing is taken.
void no_sends_in_rtr_without_a_peer(void**) {
  Side s(64);
  assert_int_equal(to_init(s), 0);
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTR;
  assert_int_equal(s.qp->modify(a, IBV_QP_STATE), 0);
  assert_int_equal(s.send(IBV_WR_SEND, {s.sge(0, 16)}), EINVAL);
}

// The side that connects learns from ibv_modify_qp() that there is no descriptor left, and can try again.
void no_descriptor_left(void**) {
  Side a(1 << 14), b(1 << 14);
  Side& connects = number(a) < number(b) ? a : b;
  Side& waits = number(a) < number(b) ? b : a;
  assert_int_equal(to_init(connects), 0);
  up(waits, number(connects));
  // For good: not everybody may give a hard limit back. This test is the last.
  rlimit limit{};
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max = std::min<rlim_t>(limit.rlim_max, 1024);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<int> taken;
  for (int fd; (fd = dup(0)) >= 0;) taken.push_back(fd);
  const int refused = to_rtr(connects, number(waits));
  for (const int fd : taken) close(fd);
  assert_int_equal(refused, EMFILE);
  assert_int_equal(connects.state(), IBV_QPS_INIT);
  assert_int_equal(to_rtr(connects, number(waits)), 0);
  assert_int_equal(to_rts(connects), 0);
  traffic(connects, waits);
}

void sends_wait_for_the_connection(void**) {
  for (const bool swapped : {false, true}) {
    Side a(1 << 14), b(1 << 14);
    Side& early = swapped ? b : a;
    Side& late = swapped ? a : b;
    up(early, number(late));
    for (std::uint64_t i = 1; i <= 100; ++i)
      assert_int_equal(early.send(IBV_WR_SEND, {early.sge(0, 16)}, 0, 0, IBV_SEND_SIGNALED, i), 0);
    sleep_ms(50);
    ibv_wc wc;
    assert_int_equal(early.cq.poll(1, &wc), 0);
    assert_int_equal(to_init(late), 0);
    for (std::uint64_t i = 1; i <= 100; ++i) assert_int_equal(late.receive({late.sge(0, 16)}, 100 + i), 0);
    assert_int_equal(to_rtr(late, number(early)), 0);
    for (std::uint64_t i = 1; i <= 100; ++i) expect_wc(early, i);
    for (std::uint64_t i = 1; i <= 100; ++i) expect_wc(late, 100 + i);
  }
}

// Holds: VRB-34
void many_at_once(void**) {
  constexpr std::size_t kPairs = test::kInstrumented ? 100 : 300;
  Side warm(64);  // what the process opens once is open
  const std::size_t before = test::open_files();
  {
    std::vector<std::unique_ptr<Side>> sides;
    for (std::size_t i = 0; i < 2 * kPairs; ++i) sides.push_back(std::make_unique<Side>(1 << 14));
    std::vector<std::uint32_t> numbers;
    for (const auto& s : sides) numbers.push_back(number(*s));
    std::sort(numbers.begin(), numbers.end());
    assert_true(std::adjacent_find(numbers.begin(), numbers.end()) == numbers.end());
    // Two threads: each brings up one side of all pairs, in opposite order.
    std::thread others([&] {
      for (std::size_t i = kPairs; i-- > 0;) up(*sides[2 * i + 1], number(*sides[2 * i]));
    });
    for (std::size_t i = 0; i < kPairs; ++i) up(*sides[2 * i], number(*sides[2 * i + 1]));
    others.join();
    for (std::size_t i = 0; i < kPairs; ++i) traffic(*sides[2 * i], *sides[2 * i + 1]);
    for (std::size_t i = 0; i < kPairs; ++i) traffic(*sides[2 * i + 1], *sides[2 * i]);
  }
  expect_fds(before + 4);  // ports of further QP numbers stay
}

// Holds: VRB-34
void self_loop(void**) {
  for (const int gid : families()) {
    Side s(1 << 20);
    up(s, number(s), gid);
    for (int i = 0; i < 10; ++i) {
      assert_int_equal(s.receive({s.sge(4096, 64)}, 100), 0);
      assert_int_equal(s.send(IBV_WR_SEND, {s.sge(0, 64)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
      std::uint64_t seen = 0;
      for (int n = 0; n < 2; ++n) {
        const ibv_wc wc = s.wait();
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        seen += wc.wr_id;
      }
      assert_int_equal(seen, 101);
    }
    std::memset(s.at(0), 0x11, 1 << 18);
    assert_int_equal(s.send(IBV_WR_RDMA_WRITE, {s.sge(0, 1 << 18)}, s.address(1 << 18), s.mr->stag()), 0);
    expect_wc(s, 1);
    assert_int_equal(s.send(IBV_WR_RDMA_READ, {s.sge(1 << 19, 1 << 18)}, s.address(1 << 18), s.mr->stag()), 0);
    expect_wc(s, 1);
    assert_memory_equal(s.at(0), s.at(1 << 19), 1 << 18);
  }
  needs(families().size(), 2);
}

void wrong_attributes(void**) {
  const struct {
    const char* what;
    int mask;
    void (*spoil)(ibv_qp_attr&);
  } kCases[] = {
      {"no DEST_QPN", kRtrMask & ~IBV_QP_DEST_QPN, [](ibv_qp_attr&) {}},
      {"no AV", kRtrMask & ~IBV_QP_AV, [](ibv_qp_attr&) {}},
      {"no GID", kRtrMask, [](ibv_qp_attr& a) { a.ah_attr.is_global = 0; }},
      {"port 2", kRtrMask, [](ibv_qp_attr& a) { a.ah_attr.port_num = 2; }},
      {"GID index", kRtrMask, [](ibv_qp_attr& a) { a.ah_attr.grh.sgid_index = 200; }},
      {"zero GID", kRtrMask, [](ibv_qp_attr& a) { a.ah_attr.grh.dgid = {}; }},
      {"multicast", kRtrMask, [](ibv_qp_attr& a) { a.ah_attr.grh.dgid.raw[12] = 224; }},
      {"other family", kRtrMask, [](ibv_qp_attr& a) { a.ah_attr.grh.dgid.raw[0] = 0xfd; }},
      {"number", kRtrMask, [](ibv_qp_attr& a) { a.dest_qp_num = 1 << 24; }},
      {"MTU", kRtrMask, [](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(6); }},
  };
  for (const auto& c : kCases) {
    print_message("case: %s\n", c.what);
    Side s(64);
    assert_int_equal(to_init(s), 0);
    ibv_qp_attr a = rtr_attr(number(s));
    c.spoil(a);
    assert_int_equal(s.qp->modify(a, c.mask), EINVAL);
    assert_int_equal(s.state(), IBV_QPS_INIT);
    up(s, number(s));  // no harm was done
  }
}

void query_repeats_what_was_said(void**) {
  Side a(64), b(64);
  up(a, number(b));
  ibv_qp_attr got{};
  ibv_qp_init_attr init{};
  assert_int_equal(a.qp->query(got, init), 0);
  assert_int_equal(got.qp_state, IBV_QPS_RTS);
  assert_int_equal(got.dest_qp_num, number(b));
  assert_int_equal(got.path_mtu, IBV_MTU_1024);
  assert_int_equal(got.timeout, 14);
  assert_int_equal(got.ah_attr.is_global, 1);
}

// RESET, ERR and destroy at any moment; then the same QPs are brought up again.
void an_end_at_any_moment(void**) {
  Side warm(64), peer(1 << 14);
  sleep_ms(50);
  const std::size_t before = test::open_files();
  for (int microseconds = 0; microseconds < 3000; microseconds += 50)
    for (const int end : {0, 1, 2}) {
      auto s = std::make_unique<Side>(1 << 14);
      up(*s, number(peer));
      up(peer, number(*s));
      assert_int_equal(s->send(IBV_WR_SEND, {s->sge(0, 8)}, 0, 0, 0), 0);
      const auto until = Clock::now() + std::chrono::microseconds(microseconds);
      while (Clock::now() < until) {
      }
      if (end == 0) {
        s.reset();
      } else {
        ibv_qp_attr a{};
        a.qp_state = end == 1 ? IBV_QPS_RESET : IBV_QPS_ERR;
        assert_int_equal(s->qp->modify(a, IBV_QP_STATE), 0);
        reset(*s);
        reset(peer);
        up(peer, number(*s));
        up(*s, number(peer));
        traffic(*s, peer);
      }
      reset(peer);
    }
  expect_fds(before + 5);
}

// What to_rts() sets: 8 tries of 67 ms.
constexpr auto kAllTries = std::chrono::milliseconds(536);

// Its oldest unfinished send, of several that were posted at this time, has failed only when all tries were over.
void expect_given_up(Side& s, Clock::time_point posted, std::vector<std::pair<std::uint64_t, int>> want) {
  std::vector<std::pair<std::uint64_t, int>> got;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const ibv_wc wc = s.wait();
    if (i == 0) assert_true(Clock::now() - posted >= kAllTries);
    got.emplace_back(wc.wr_id, wc.status);
  }
  std::sort(got.begin(), got.end());
  assert_true(got == want);
  assert_int_equal(s.state(), IBV_QPS_ERR);
}

// The peer goes when both have what they wanted: nothing is said, until something is sent to it, and tried often
// enough.
void a_peer_that_leaves(void**) {
  Side a(1 << 14);
  {
    Side b(1 << 14);
    up(a, number(b));
    up(b, number(a));
    traffic(a, b);
    assert_int_equal(a.receive({a.sge(0, 64)}, 100), 0);
    assert_int_equal(a.receive({a.sge(0, 64)}, 101), 0);
    assert_int_equal(b.send(IBV_WR_SEND, {b.sge(0, 8)}), 0);
    expect_wc(b, 1);
  }
  expect_wc(a, 100);
  sleep_ms(100);
  ibv_wc wc;
  assert_int_equal(a.cq.poll(1, &wc), 0);
  assert_int_equal(a.state(), IBV_QPS_RTS);
  const auto posted = Clock::now();
  assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 8)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
  assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 8)}, 0, 0, IBV_SEND_SIGNALED, 2), 0);
  expect_given_up(a, posted, {{1, IBV_WC_RETRY_EXC_ERR}, {2, IBV_WC_WR_FLUSH_ERR}, {101, IBV_WC_WR_FLUSH_ERR}});
}

// It goes while a Read of ours has no answer: it has not come to it, as the Send before found no receive.
void a_peer_that_leaves_early(void**) {
  Side a(1 << 14);
  auto posted = Clock::now();
  {
    Side b(1 << 14);
    up(a, number(b));
    up(b, number(a));
    traffic(a, b);
    assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 8)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
    expect_wc(a, 1);
    assert_int_equal(a.send(IBV_WR_RDMA_READ, {a.sge(8192, 4096)}, b.address(8192), b.mr->stag(), IBV_SEND_SIGNALED, 2),
                     0);
    posted = Clock::now();
  }
  assert_int_equal(a.receive({a.sge(0, 64)}, 100), 0);
  expect_given_up(a, posted, {{2, IBV_WC_RETRY_EXC_ERR}, {100, IBV_WC_WR_FLUSH_ERR}});
}

// Who gives a queue pair up itself waits for nothing, and nothing comes later.
void a_peer_that_left_is_given_up(void**) {
  Side a(1 << 14);
  for (const ibv_qp_state end : {IBV_QPS_ERR, IBV_QPS_RESET}) {
    Side b(1 << 14);
    up(a, number(b));
    up(b, number(a));
    traffic(a, b);
    reset(b);
    sleep_ms(50);
    assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 8)}, 0, 0, IBV_SEND_SIGNALED, 7), 0);
    ibv_qp_attr to{};
    to.qp_state = end;
    assert_int_equal(a.qp->modify(to, IBV_QP_STATE), 0);
    if (end == IBV_QPS_ERR) expect_wc(a, 7, IBV_WC_WR_FLUSH_ERR);
    reset(a);
    up(a, number(b));
    up(b, number(a));
    sleep_ms(600);  // longer than all tries
    traffic(a, b);
    reset(a);
  }
}

// --- a raw socket as the initiator ---

void hostile_requests(void**) {
  Side s(64);
  const std::uint32_t peer = 1025;  // smaller, so s waits for it
  up(s, peer);
  const auto good = verbs::PairNames{number(s), peer, 0}.emit();
  const auto changed = [&](std::size_t at, unsigned octet) {
    auto bad = good;
    bad[at] = std::byte(octet);
    return std::vector(bad.begin(), bad.end());
  };
  const struct {
    const char* what;
    std::vector<std::byte> data;
    bool enhanced;
    const char* from;
    char want;
  } kCases[] = {
      {"another source QP", changed(15, 0xff), true, "127.0.0.1", 'R'},
      {"another address", {good.begin(), good.end()}, true, "127.0.0.2", 'R'},
      {"a QP that does not exist", changed(9, std::to_integer<unsigned>(good[9]) ^ 0x55), true, "127.0.0.1", 'R'},
      {"magic", changed(0, 0), true, "127.0.0.1", 'C'},
      {"version", changed(4, 2), true, "127.0.0.1", 'C'},
      {"version, again", changed(4, 2), true, "127.0.0.1", 'C'},
      {"no private data", {}, true, "127.0.0.1", 'C'},
      {"short private data", {good.begin(), good.end() - 1}, true, "127.0.0.1", 'C'},
      {"revision 1", {good.begin(), good.end()}, false, "127.0.0.1", 'C'},
      {"the right one", {good.begin(), good.end()}, true, "127.0.0.1", 'A'},
      {"the right one, twice", {good.begin(), good.end()}, true, "127.0.0.1", 'R'},
  };
  std::vector<int> fds;
  const test::CapturedStderr said;
  for (const auto& c : kCases) {
    print_message("case: %s\n", c.what);
    fds.push_back(connect_raw(number(s), c.from));
    request(fds.back(), c.data, c.enhanced);
    const char got = answer(fds.back());
    if (got != c.want) fail_msg("%s: '%c', not '%c'", c.what, got, c.want);
    assert_int_equal(s.state(), IBV_QPS_RTS);
  }
  assert_int_equal(said.count("speaks version 2 of the start-up by address, this EtherWARP version 1"), 1);
  // Octets that are no Request.
  fds.push_back(connect_raw(number(s)));
  assert_int_equal(send(fds.back(), "GET / HTTP/1.0\r\n\r\n......", 24, 0), 24);
  assert_int_equal(answer(fds.back()), 'C');
  for (const int fd : fds) close(fd);
}

// The initiator leaves, or talks nonsense, between Reply and first message: the QP waits for the next one.
void a_start_up_that_breaks_off(void**) {
  for (const bool nonsense : {false, true}) {
    Side s(64);
    const std::uint32_t peer = 1025;
    up(s, peer);
    for (int i = 0; i < 3; ++i) {
      char got = 'R';
      int fd = -1;
      // The QP hears of the former one's end a moment later.
      for (const auto until = Clock::now() + std::chrono::milliseconds(test::kPatience);
           got == 'R' && Clock::now() < until;) {
        if (fd >= 0) {
          close(fd);
          sleep_ms(5);
        }
        fd = connect_raw(number(s));
        request(fd, verbs::PairNames{number(s), peer, 0}.emit());
        got = answer(fd);
      }
      assert_int_equal(got, 'A');
      if (nonsense) assert_int_equal(send(fd, "\0\0\0\0\0\0\0\0\0\0\0\0", 12, 0), 12);
      close(fd);
    }
    assert_int_equal(s.state(), IBV_QPS_RTS);
    assert_int_equal(s.event(0), -1);
  }
}

// The raw initiator of this QP's stream, who consents to no extension; its RTR is said.
constexpr std::uint32_t kRawNumber = 1025;  // smaller, so the QP waits for it
std::unique_ptr<Peer> raw_peer(Side& s) {
  mpa::StartupConfig config;
  config.want_crc = config.extensions = false;
  config.ird = config.ord = 4;
  const auto names = verbs::PairNames{number(s), kRawNumber, 0}.emit();
  const mpa::Initiator initiator(config, names);
  const Octets octets = initiator.request();
  const int fd = connect_raw(number(s));
  assert_int_equal(send(fd, octets.data(), octets.size(), 0), octets.size());
  assert_int_equal(answer(fd), 'A');
  auto peer = std::make_unique<Peer>(fd, false);
  peer->send(write_segment(0, 0, {}));
  return peer;
}

// A peer does not leave in the middle of a Write: the QP ends at once.
void a_fin_between_segments(void**) {
  Side s(1 << 14);
  up(s, kRawNumber);
  assert_int_equal(s.receive({s.sge(0, 64)}), 0);
  const auto peer = raw_peer(s);
  peer->send(write_segment(s.mr->stag(), s.address(0), pattern(32), false));
  peer->shut_down();
  expect_wc(s, 100, IBV_WC_WR_FLUSH_ERR);
  assert_true(s.reaches(IBV_QPS_ERR));
}

// What was posted before the stream stood needs a consent that the peer has not given. It fails by itself, and not a
// word is said of it.
void extensions_without_consent(void**) {
  for (const auto op : {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    Side s(1 << 14);
    up(s, kRawNumber);
    assert_int_equal(s.send(IBV_WR_SEND, {s.sge(0, 8)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
    if (op == IBV_WR_ATOMIC_FETCH_AND_ADD)
      assert_int_equal(s.atomic(op, s.sge(0, 8), kFar, kKey, 1, 0, IBV_SEND_SIGNALED, 2), 0);
    else
      assert_int_equal(s.send(op, {s.sge(0, 8)}, kFar, kKey, IBV_SEND_SIGNALED, 2), 0);
    assert_int_equal(s.send(IBV_WR_SEND, {s.sge(0, 8)}, 0, 0, IBV_SEND_SIGNALED, 3), 0);
    const auto peer = raw_peer(s);
    assert_int_equal(peer->next_segment().opcode, kSend);
    peer->expect(terminate(0, 0, 0));
    expect_wc(s, 1);
    expect_wc(s, 2, IBV_WC_REM_INV_REQ_ERR);
    expect_wc(s, 3, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(s.event(), IBV_EVENT_QP_FATAL);
  }
}

// A QP for which nobody asked by address: no listener, and no start-up of somebody else's reaches it.
void a_qp_of_rdma_cm_has_no_listener(void**) {
  Side s(64);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port_of(number(s)));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), -1);
  assert_int_equal(errno, ECONNREFUSED);
  close(fd);
  const std::size_t before = test::open_files();
  Side more(64);
  assert_true(test::open_files() <= before + 6);  // the event channels of a Side, and nothing else
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("500", "60000");
  for (const char* wait : {"ETHERWARP_BRING_UP_TIMEOUT_MS", "ETHERWARP_REQUEST_TIMEOUT_MS", "ETHERWARP_RTR_TIMEOUT_MS"})
    setenv(wait, "60000", 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_qp_of_rdma_cm_has_no_listener),  // first: the port is listened on for good
      cmocka_unit_test(both_orders_and_delays),
      cmocka_unit_test(mpa_18_connections_send_at_once),
      cmocka_unit_test(rtr_long_before_rts),
      cmocka_unit_test(sends_in_rtr),
      cmocka_unit_test(no_sends_in_rtr_without_a_peer),
      cmocka_unit_test(sends_wait_for_the_connection),
      cmocka_unit_test(many_at_once),
      cmocka_unit_test(self_loop),
      cmocka_unit_test(wrong_attributes),
      cmocka_unit_test(query_repeats_what_was_said),
      cmocka_unit_test(an_end_at_any_moment),
      cmocka_unit_test(a_peer_that_leaves),
      cmocka_unit_test(a_peer_that_leaves_early),
      cmocka_unit_test(a_peer_that_left_is_given_up),
      cmocka_unit_test(hostile_requests),
      cmocka_unit_test(a_start_up_that_breaks_off),
      cmocka_unit_test(a_fin_between_segments),
      cmocka_unit_test(extensions_without_consent),
      cmocka_unit_test(no_descriptor_left),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
