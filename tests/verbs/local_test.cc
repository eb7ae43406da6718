// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Queue pairs whose connection leaves TCP for shared memory (docs/protocol/local.md), told their peer by address.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "llp/local_agreement.h"
#include "provider/base/stats.h"
#include "provider/startup/pair_names.h"
#include "tests/llp/local_script.h"
#include "tests/vectors/waits.h"
#include "tests/verbs/raw_start_up.h"
#include "tests/wire/scene.h"

// Last: cmocka's macros (fail) would cut through other headers.
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

using namespace ewarp;
using namespace ewarp::test;
using namespace ewarp::test::by_address;

namespace {

std::uint64_t local_streams() {
  return any_device().counters().local_streams;
}

void join_up(Side& a, Side& b) {
  up(a, number(b));
  up(b, number(a));
}

void traffic_goes_through_memory(void**) {
  for (const bool ipv4 : {true, false}) {
    if (gid_index(ipv4) < 0) continue;
    const std::uint64_t before = local_streams();
    Side a, b;
    up(a, number(b), gid_index(ipv4));
    up(b, number(a), gid_index(ipv4));
    traffic(a, b);
    traffic(b, a);
    assert_int_equal(local_streams() - before, 2);
  }
}

// Larger than a ring, both ways at once.
void large_messages(void**) {
  constexpr std::uint32_t kOctets = 3 << 20;
  Side a(4 * kOctets), b(4 * kOctets);
  join_up(a, b);
  for (std::uint32_t i = 0; i < kOctets; ++i) {
    *a.at(i) = static_cast<std::byte>(i * 7 + i / 253);
    *b.at(i) = static_cast<std::byte>(i * 3 + i / 255);
  }
  for (int round = 0; round < 5; ++round) {
    assert_int_equal(a.send(IBV_WR_RDMA_WRITE, {a.sge(0, kOctets)}, b.address(kOctets), b.mr->stag()), 0);
    assert_int_equal(b.send(IBV_WR_RDMA_WRITE, {b.sge(0, kOctets)}, a.address(kOctets), a.mr->stag()), 0);
    assert_int_equal(a.send(IBV_WR_RDMA_READ, {a.sge(2 * kOctets, kOctets)}, b.address(0), b.mr->stag()), 0);
    assert_int_equal(b.send(IBV_WR_RDMA_READ, {b.sge(2 * kOctets, kOctets)}, a.address(0), a.mr->stag()), 0);
    for (Side* s : {&a, &b})
      for (int i = 0; i < 2; ++i) assert_int_equal(s->wait().status, IBV_WC_SUCCESS);
    // A Read behind a Write sees it.
    for (Side* s : {&a, &b}) {
      Side& peer = s == &a ? b : a;
      assert_memory_equal(s->at(kOctets), peer.at(0), kOctets);
      assert_memory_equal(s->at(2 * kOctets), peer.at(0), kOctets);
      std::memset(s->at(kOctets), 0, 2 * kOctets);
    }
  }
}

// More than can be polled: each is found by its bell, and all by turns.
void many_queue_pairs(void**) {
  constexpr std::size_t kPairs = 40;
  std::vector<std::unique_ptr<Side>> sides;
  for (std::size_t i = 0; i < 2 * kPairs; ++i) sides.push_back(std::make_unique<Side>(1 << 14));
  for (std::size_t i = 0; i < kPairs; ++i) join_up(*sides[2 * i], *sides[2 * i + 1]);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t i = 0; i < kPairs; ++i) {
      Side &from = *sides[2 * i + (round & 1)], &to = *sides[2 * i + 1 - (round & 1)];
      std::memset(from.at(0), static_cast<int>(i + 1 + static_cast<std::size_t>(round)), 8192);
      assert_int_equal(to.receive({to.sge(8192, 8192)}), 0);
      assert_int_equal(from.send(IBV_WR_SEND, {from.sge(0, 8192)}), 0);
    }
    for (std::size_t i = 0; i < kPairs; ++i) {
      Side &from = *sides[2 * i + (round & 1)], &to = *sides[2 * i + 1 - (round & 1)];
      assert_int_equal(from.wait().status, IBV_WC_SUCCESS);
      assert_int_equal(to.wait().status, IBV_WC_SUCCESS);
      assert_memory_equal(to.at(8192), from.at(0), 8192);
    }
  }
}

// Nobody polls: the background thread sleeps, and the bell wakes it.
void the_receiver_sleeps(void**) {
  Side a, b;
  join_up(a, b);
  traffic(a, b);
  for (int i = 0; i < 50; ++i) {
    assert_int_equal(b.receive({b.sge(0, 100)}), 0);
    b.cq.arm(false);
    poll(nullptr, 0, i % 10);
    assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 100)}), 0);
    assert_true(b.cq_event());
    assert_int_equal(b.wait().status, IBV_WC_SUCCESS);
    assert_int_equal(a.wait().status, IBV_WC_SUCCESS);
  }
}

// The background thread is woken, but who polls has taken the message by then. What comes when he polls no more wakes
// it again.
void a_poller_that_goes_to_sleep(void**) {
  Side a, b;
  join_up(a, b);
  traffic(a, b);
  ibv_wc wc;
  for (int i = 0; i < 100; ++i) {
    poll(nullptr, 0, 3);  // the background thread goes to sleep
    for (int k = 0; k < 2; ++k) assert_int_equal(b.receive({b.sge(0, 100)}), 0);
    assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 100)}), 0);
    assert_int_equal(b.wait().status, IBV_WC_SUCCESS);
    for (int k = 0; k < 200; ++k) assert_int_equal(b.cq.poll(1, &wc), 0);
    b.cq.arm(false);
    assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 100)}), 0);
    assert_true(b.cq_event());
    assert_int_equal(b.wait().status, IBV_WC_SUCCESS);
    for (int k = 0; k < 2; ++k) assert_int_equal(a.wait().status, IBV_WC_SUCCESS);
  }
}

// A bell that has woken the background thread does so once.
void an_idle_stream_wakes_nobody(void**) {
  Side a, b;
  join_up(a, b);
  for (int i = 0; i < 5; ++i) {
    traffic(a, b);
    assert_int_equal(b.receive({b.sge(0, 100)}), 0);
    b.cq.arm(false);
    poll(nullptr, 0, 10);
    assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 100)}), 0);
    assert_true(b.cq_event());
    assert_int_equal(b.wait().status, IBV_WC_SUCCESS);
    assert_int_equal(a.wait().status, IBV_WC_SUCCESS);
    poll(nullptr, 0, 50);  // it goes to sleep
    const auto before = ewarp::stats::page().background_wakeups.load();
    poll(nullptr, 0, 100);
    assert_in_range(ewarp::stats::page().background_wakeups.load() - before, 0, 100);
  }
}

void the_peer_ends(void**) {
  Side a;
  {
    Side b;
    join_up(a, b);
    traffic(a, b);
    assert_int_equal(a.receive({a.sge(0, 100)}), 0);
  }
  // By address one does not hear of a peer that left well; the next Send does, once its end was seen.
  ibv_wc wc{};
  for (int i = 0; i < 1000 && wc.status == IBV_WC_SUCCESS; ++i) {
    poll(nullptr, 0, 10);
    assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 100)}, 0, 0, IBV_SEND_SIGNALED, 9), 0);
    wc = a.wait();
    assert_int_equal(wc.wr_id, 9);
  }
  assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
  assert_true(a.reaches(IBV_QPS_ERR));
}

// A wrong key: the Terminate goes through memory, too.
void a_terminate(void**) {
  Side a, b;
  join_up(a, b);
  traffic(a, b);
  assert_int_equal(a.send(IBV_WR_RDMA_READ, {a.sge(0, 100)}, b.address(0), b.mr->stag() ^ 0x100), 0);
  assert_int_equal(a.wait().status, IBV_WC_REM_ACCESS_ERR);
  assert_true(a.reaches(IBV_QPS_ERR));
  assert_true(b.reaches(IBV_QPS_ERR));
}

// Once no descriptor comes or goes any more.
std::size_t files_at_rest() {
  std::size_t files = open_files();
  for (int same = 0; same < 50; ++same) {
    poll(nullptr, 0, 10);
    if (const std::size_t now = open_files(); now != files) {
      files = now;
      same = 0;
    }
  }
  return files;
}

void expect_no_more_files(std::size_t than) {
  for (int i = 0; i < 3000 && open_files() > than; ++i) poll(nullptr, 0, 10);
  assert_in_range(open_files(), 0, than);
}

// The background thread sleeps, but for a moment.
void expect_sleep() {
  const auto before = ewarp::stats::page().background_wakeups.load();
  poll(nullptr, 0, 100);
  assert_in_range(ewarp::stats::page().background_wakeups.load() - before, 0, 100);
}

// What the connection opened is closed again.
void nothing_is_left(void**) {
  const auto once = [] {
    Side a(1 << 14), b(1 << 14);
    join_up(a, b);
    traffic(a, b);
  };
  once();
  const std::size_t before = files_at_rest();
  for (int i = 0; i < 20; ++i) once();
  expect_no_more_files(before);
}

// What a forked child has, too, is not gone when it is closed here. A failed agreement is watched no more all the same.
void a_failed_agreement_that_a_child_shares(void**) {
  int tcp[2];
  wire::tcp_pair(tcp);
  auto responder = llp::LocalAgreement::listen(tcp[1]);
  auto initiator = llp::LocalAgreement::connect(tcp[0]);
  assert_true(responder != nullptr && initiator != nullptr);
  const int childs = dup(initiator->fd());
  {
    Side a(1 << 14);
    assert_int_equal(a.qp->attach(llp::tcp_stream(tcp[0], std::move(initiator)), params(true), a.observer), 0);
    responder.reset();
    assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 100)}), 0);
    assert_int_equal(a.wait().status, IBV_WC_SUCCESS);  // by TCP
    poll(nullptr, 0, 50);                               // the background thread goes to sleep
    expect_sleep();
  }
  Side b(1 << 14), c(1 << 14);
  join_up(b, c);
  traffic(b, c);
  close(childs);
  close(tcp[1]);
}

// --- agreements that stall ---

constexpr std::chrono::milliseconds kAgreement{1000};  // so long the ends try (docs/protocol/local.md)

// A queue pair of ours and the end of a script's, who speaks TCP, and in an agreement what he likes.
class Scripted {
 public:
  explicit Scripted(bool initiates) : initiates_(initiates), local_before_(local_streams()) {
    int tcp[2];
    wire::tcp_pair(tcp);
    name_.emplace(tcp[0]);
    ours_ = tcp[initiates ? 0 : 1];
    if (initiates) door_ = wait_for_an_initiator(*name_);
    agreement_ = initiates ? llp::LocalAgreement::connect(ours_) : llp::LocalAgreement::listen(ours_);
    assert_true(agreement_ != nullptr);
    peer = std::make_unique<wire::Peer>(tcp[initiates ? 1 : 0], false);
    assert_int_equal(llp::LocalMemory::create(&memory, &file_), 0);
  }
  ~Scripted() {
    for (const int fd : {script, door_, file_})
      if (fd >= 0) close(fd);
  }
  Scripted(const Scripted&) = delete;
  Scripted& operator=(const Scripted&) = delete;

  // He comes to our door, or lets us in.
  void meet() {
    script = initiates_ ? accept4(door_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK) : come(*name_);
    assert_true(script >= 0);
  }
  void say(const char* word, bool with_memory = false) {
    assert_true(test::say(script, word, std::span<const int>(&file_, with_memory ? 1u : 0u)));
  }
  // Nobody is let in any more.
  bool is_closed() const { return come(*name_) < 0; }
  int release_script() { return std::exchange(script, -1); }

  void attach() {
    assert_int_equal(
        side.qp->attach(llp::tcp_stream(ours_, std::move(agreement_)), params(initiates_, false, false), side.observer),
        0);
    assert_int_equal(side.receive({side.sge(4096, 100)}), 0);
    assert_int_equal(side.send(IBV_WR_SEND, {side.sge(0, 100)}), 0);
  }
  // What was posted meanwhile comes this way, and what the peer says is heard.
  void expect_traffic(wire::Peer& by) {
    const wire::Segment sent = by.next_segment();
    assert_int_equal(sent.opcode, wire::kSend);
    assert_int_equal(sent.payload.size(), 100);
    expect_wc(side, 1);
    by.send(wire::send_segment(1, wire::pattern(100)));
    expect_wc(side, 100);
  }
  void expect_tcp() {
    expect_traffic(*peer);
    assert_int_equal(local_streams() - local_before_, 0);
  }
  void expect_local(wire::Peer& rings) {
    expect_traffic(rings);
    assert_int_equal(local_streams() - local_before_, 1);
  }

  Side side{1 << 14};
  std::unique_ptr<wire::Peer> peer;  // by TCP
  int script = -1;
  llp::LocalMemory memory;

 private:
  const bool initiates_;
  const std::uint64_t local_before_;
  std::optional<LocalName> name_;
  std::unique_ptr<llp::LocalAgreement> agreement_;
  int ours_ = -1, door_ = -1, file_ = -1;
};

// Another pair has its messages meanwhile. What was opened is closed, and what was counted is one connection each that
// did not leave TCP.
void the_other_end_stalls(void**) {
  struct Case {
    const char* what;
    bool initiates, waits;  // ours; until it has taken too long
    void (*script)(Scripted&);
  };
  static constexpr Case kCases[] = {
      {"nobody comes", false, true, [](Scripted&) {}},
      {"somebody comes and says nothing", false, true, [](Scripted& s) { s.meet(); }},
      {"half of a word", false, false,
       [](Scripted& s) {
         s.meet();
         s.say("EWARP", true);
       }},
      {"the memory comes behind its word", false, false,
       [](Scripted& s) {
         s.meet();
         s.say("EWARPLM1");
         s.say("EWARPLM1", true);
       }},
      {"somebody comes and leaves", false, false,
       [](Scripted& s) {
         s.meet();
         close(s.release_script());
       }},
      {"nobody lets us in", true, true, [](Scripted&) {}},
      {"we are let in, and nothing is said", true, true, [](Scripted& s) { s.meet(); }},
      {"half of an answer", true, false,
       [](Scripted& s) {
         s.meet();
         s.say("tak");
       }},
      {"an empty answer", true, false,
       [](Scripted& s) {
         s.meet();
         s.say("");
       }},
      {"we are let in and shown the door", true, false,
       [](Scripted& s) {
         s.meet();
         close(s.release_script());
       }},
  };
  Side a, b;
  join_up(a, b);
  traffic(a, b);
  const std::size_t files = files_at_rest();
  const auto& counted = any_device().counters();
  const std::uint64_t connections = counted.connections, disconnects = counted.disconnects;
  std::uint64_t rounds = 0;
  for (const Case& k : kCases) {
    print_message("case: %s\n", k.what);
    const auto once = [&] {
      ++rounds;
      Scripted s(k.initiates);
      k.script(s);
      const auto began = Clock::now();
      s.attach();
      traffic(a, b);
      s.expect_tcp();
      const auto passed = since(began);
      if (s.script >= 0 && !k.initiates) assert_true(is_shown_the_door(s.script));
      if (!k.initiates) assert_true(s.is_closed());
      return passed;
    };
    if (k.waits)
      expect_to_last(kAgreement, k.what, once);
    else
      for (int i = 1; once() >= kAgreement; ++i) assert_true(i < kWaits);
  }
  assert_int_equal(counted.connections - connections, rounds);
  for (int i = 0; i < kPatience && counted.disconnects - disconnects < rounds; ++i) poll(nullptr, 0, 1);
  assert_int_equal(counted.disconnects - disconnects, rounds);
  expect_no_more_files(files);
}

// Who hears that it stands may turn elsewhere, so nobody hears it before its first octets can leave.
void nobody_is_told_before_the_ends_agree(void**) {
  const auto established = [](const Scripted& s) { return s.side.observer->established.load(); };
  const auto wait_for_it = [&](const Scripted& s) {
    for (int i = 0; i < kPatience && established(s) == 0; ++i) poll(nullptr, 0, 1);
    assert_int_equal(established(s), 1);
  };
  expect_to_last(kAgreement, "nothing is said", [&] {
    Scripted s(true);
    const auto began = Clock::now();
    s.attach();
    wait_for_it(s);
    return since(began);
  });
  Scripted s(true);
  s.meet();
  const auto began = Clock::now();
  s.attach();
  poll(nullptr, 0, 50);
  if (const bool told = established(s) != 0; since(began) < kAgreement) assert_false(told);
  s.say("taken");
  wait_for_it(s);
}

// Its memory was taken, and it says nothing more, as a process that is stopped: only it knows what it does next, so the
// responder waits as it would for TCP. Nobody else gets in, and nobody is kept awake.
void an_initiator_stalls_behind_its_memory(void**) {
  enum class Then { begins, speaks_by_tcp, leaves, ends_tcp, is_left };
  Side a, b;
  join_up(a, b);
  traffic(a, b);
  const std::size_t files = files_at_rest();
  for (const Then then : {Then::begins, Then::speaks_by_tcp, Then::leaves, Then::ends_tcp, Then::is_left}) {
    Scripted s(false);
    s.meet();
    s.say("EWARPLM1", true);
    s.attach();
    assert_string_equal(hear(s.script).c_str(), "taken");
    assert_true(s.is_closed());
    traffic(a, b);
    s.peer->expect_silence(static_cast<int>(kAgreement.count()) + 200);
    expect_sleep();
    ibv_qp_attr attr{};
    switch (then) {
      case Then::begins: {
        s.say("begin");
        wire::Peer rings(wire::ring_end(s.release_script(), std::move(s.memory)), false);
        s.expect_local(rings);
        s.peer->expect_fin();
        break;
      }
      case Then::speaks_by_tcp:
        s.peer->send(wire::write_segment(0, 0, {}));
        s.expect_tcp();
        break;
      case Then::leaves:
        close(s.release_script());
        s.expect_tcp();
        break;
      case Then::ends_tcp:
        s.peer->close();
        assert_true(s.side.reaches(IBV_QPS_ERR));
        assert_true(s.side.disconnects());
        assert_true(is_shown_the_door(s.script));
        break;
      case Then::is_left:
        attr.qp_state = IBV_QPS_ERR;
        assert_int_equal(s.side.qp->modify(attr, IBV_QP_STATE), 0);
        for (int i = 0; i < 2; ++i) assert_int_equal(s.side.wait().status, IBV_WC_WR_FLUSH_ERR);
        assert_true(is_shown_the_door(s.script));
        s.peer->discard();
        assert_true(s.side.disconnects());
        break;
    }
    traffic(a, b);
  }
  expect_no_more_files(files);
}

// A process of the same user that knows the name of a connection takes the initiator's place: both ends stay with TCP.
void somebody_else_takes_the_place(void**) {
  for (const bool says_something : {false, true}) {
    const std::uint64_t before = local_streams();
    int tcp[2];
    wire::tcp_pair(tcp);
    const LocalName name(tcp[0]);
    auto responder = llp::LocalAgreement::listen(tcp[1]);
    const int other = come(name);
    auto initiator = llp::LocalAgreement::connect(tcp[0]);
    assert_true(responder != nullptr && other >= 0 && initiator != nullptr);
    if (says_something) assert_true(say(other, "begin"));
    Side a, b;
    assert_int_equal(b.qp->attach(llp::tcp_stream(tcp[1], std::move(responder)), params(false), b.observer), 0);
    assert_int_equal(a.qp->attach(llp::tcp_stream(tcp[0], std::move(initiator)), params(true), a.observer), 0);
    traffic(a, b);
    traffic(b, a);
    assert_true(is_shown_the_door(other));
    close(other);
    assert_int_equal(local_streams() - before, 0);
  }
}

// The Reply consents and the initiator does not come, or comes and says nothing. It speaks by TCP, at once or late.
void a_consent_that_is_not_taken_up(void**) {
  constexpr std::uint32_t kRawNumber = 1025;  // smaller, so the QP waits for it
  for (const bool comes : {false, true})
    for (const bool late : {false, true}) {
      const std::uint64_t before = local_streams();
      Side s(1 << 14);
      up(s, kRawNumber);
      mpa::StartupConfig config;
      config.want_crc = config.extensions = false;
      config.local = true;
      config.ird = config.ord = 4;
      const auto names = ewarp::verbs::PairNames{number(s), kRawNumber, 0}.emit();
      mpa::Initiator initiator(config, names);
      const int fd = connect_raw(number(s));
      const Octets octets = initiator.request();
      assert_int_equal(::send(fd, octets.data(), octets.size(), 0), octets.size());
      auto outcome = mpa::Initiator::Outcome::more;
      while (outcome == mpa::Initiator::Outcome::more) {
        std::array<std::byte, 600> reply;
        pollfd p{fd, POLLIN, 0};
        assert_int_equal(poll(&p, 1, kPatience), 1);
        const ssize_t n = recv(fd, reply.data(), std::min(initiator.want(), reply.size()), 0);
        assert_true(n > 0);
        outcome = initiator.feed(Octets(reply).first(static_cast<std::size_t>(n)));
      }
      assert_int_equal(outcome, mpa::Initiator::Outcome::accepted);
      assert_true(initiator.params().local);
      const int other = comes ? come(LocalName(fd)) : -1;
      assert_int_equal(other >= 0, comes);
      wire::Peer peer(fd, false);
      if (late) peer.expect_silence(static_cast<int>(kAgreement.count()) + 200);
      peer.send(wire::write_segment(0, 0, {}));
      assert_int_equal(s.receive({s.sge(0, 64)}), 0);
      peer.send(wire::send_segment(1, wire::pattern(64)));
      expect_wc(s, 100);
      assert_int_equal(s.send(IBV_WR_SEND, {s.sge(0, 64)}), 0);
      assert_int_equal(peer.next_segment().opcode, wire::kSend);
      expect_wc(s, 1);
      assert_int_equal(local_streams() - before, 0);
      if (!comes) continue;
      assert_true(is_shown_the_door(other));
      close(other);
    }
}

// Words of the rings that no honest peer writes end this stream as a reset does, and no other.
void a_peer_that_lies(void**) {
  constexpr std::uint32_t kOctets = 600'000;  // more than a ring
  struct Lie {
    const char* what;
    bool of_reading;
    std::uint64_t word;
  };
  static constexpr Lie kLies[] = {
      {"more written than fits", false, llp::kLocalRing + 1},
      {"written so much", false, ~std::uint64_t{0}},
      {"more read than written", true, 2 * kOctets},
      {"read so much", true, ~std::uint64_t{0}},
  };
  Side a, b;
  join_up(a, b);
  traffic(a, b);
  const std::size_t files = files_at_rest();
  for (const Lie& lie : kLies) {
    print_message("lie: %s\n", lie.what);
    Side s;
    int fds[2], file = -1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    llp::LocalMemory made, taken;
    assert_int_equal(llp::LocalMemory::create(&made, &file), 0);
    assert_int_equal(llp::LocalMemory::adopt(file, &taken), 0);
    close(file);
    assert_int_equal(s.qp->attach(llp::local_stream(fds[0], std::move(taken), false, "liar"), params(true), s.observer),
                     0);
    assert_int_equal(s.send(IBV_WR_RDMA_WRITE, {s.sge(0, kOctets)}, 4096, 77), 0);
    for (int i = 0; i < kPatience && made.ring(false).written < llp::kLocalRing; ++i) poll(nullptr, 0, 1);
    assert_int_equal(made.ring(false).written.load(), llp::kLocalRing);
    if (lie.of_reading)
      made.ring(false).read = lie.word;
    else
      made.ring(true).written = lie.word;
    assert_int_equal(::send(fds[1], "!", 1, MSG_NOSIGNAL), 1);
    assert_int_not_equal(s.wait().status, IBV_WC_SUCCESS);
    assert_true(s.reaches(IBV_QPS_ERR));
    assert_true(s.disconnects());
    traffic(a, b);
    close(fds[1]);
  }
  expect_no_more_files(files);
}

// The child has neither the memory nor the sockets; the parent's connection goes on.
void a_forked_child(void**) {
  if (kInstrumented) skip();
  Side a, b;
  join_up(a, b);
  traffic(a, b);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(0);
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  traffic(a, b);
}

}  // namespace

int main() {
  setenv("ETHERWARP_LOCAL", "auto", 1);
  setenv("ETHERWARP_BRING_UP_TIMEOUT_MS", "60000", 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(traffic_goes_through_memory),
      cmocka_unit_test(large_messages),
      cmocka_unit_test(many_queue_pairs),
      cmocka_unit_test(the_receiver_sleeps),
      cmocka_unit_test(a_poller_that_goes_to_sleep),
      cmocka_unit_test(an_idle_stream_wakes_nobody),
      cmocka_unit_test(the_peer_ends),
      cmocka_unit_test(a_terminate),
      cmocka_unit_test(nothing_is_left),
      cmocka_unit_test(a_failed_agreement_that_a_child_shares),
      cmocka_unit_test(a_peer_that_lies),
      cmocka_unit_test(the_other_end_stalls),
      cmocka_unit_test(nobody_is_told_before_the_ends_agree),
      cmocka_unit_test(an_initiator_stalls_behind_its_memory),
      cmocka_unit_test(somebody_else_takes_the_place),
      cmocka_unit_test(a_consent_that_is_not_taken_up),
      cmocka_unit_test(a_forked_child),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
