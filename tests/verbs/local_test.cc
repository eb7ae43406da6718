// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Queue pairs whose connection leaves TCP for shared memory (docs/protocol/local.md), told their peer by address.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "llp/local_agreement.h"
#include "provider/base/stats.h"
#include "tests/verbs/by_address.h"
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

// What the connection opened is closed again.
void nothing_is_left(void**) {
  const auto once = [] {
    Side a(1 << 14), b(1 << 14);
    join_up(a, b);
    traffic(a, b);
  };
  once();
  std::size_t before = open_files();
  for (int same = 0; same < 50; ++same) {
    poll(nullptr, 0, 10);
    if (const std::size_t now = open_files(); now != before) {
      before = now;
      same = 0;
    }
  }
  for (int i = 0; i < 20; ++i) once();
  for (int i = 0; i < 3000 && open_files() > before; ++i) poll(nullptr, 0, 10);
  assert_in_range(open_files(), 0, before);
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
    const auto before = ewarp::stats::page().background_wakeups.load();
    poll(nullptr, 0, 100);
    assert_in_range(ewarp::stats::page().background_wakeups.load() - before, 0, 100);
  }
  Side b(1 << 14), c(1 << 14);
  join_up(b, c);
  traffic(b, c);
  close(childs);
  close(tcp[1]);
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
      cmocka_unit_test(a_forked_child),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
