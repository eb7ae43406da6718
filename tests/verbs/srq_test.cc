// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Shared receive queues: sharing, waiting in line, the limit, the end of a QP, what is refused. That nobody waits in
// line for ever: srq_expiry_test.cc.
#include <errno.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <thread>

#include "tests/verbs/srq_hub.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

using namespace srq;
using test::kInstrumented;

// Holds: VRB-20
// 64 QPs on a queue that is often empty. No request is used twice, none is lost, all octets are right, and
// each QP's messages come in order.
void vrb_20_shared_by_many(void**) {
  constexpr std::size_t kQps = 64;
  const std::size_t each = kInstrumented ? 40 : 300;
  Hub hub(32);
  const auto sides = make_sides(hub, kQps);
  std::vector<std::size_t> sent(kQps), acknowledged(kQps), received(kQps);
  std::set<std::uint64_t> posted;
  const auto post = [&](std::size_t buffer) {
    assert_true(posted.insert(buffer).second);
    assert_int_equal(hub.post(buffer), 0);
  };
  for (std::size_t i = 0; i < 32; ++i) post(i);
  ibv_wc wc[16];
  for (std::size_t total = 0; total < kQps * each;) {
    for (std::size_t q = 0; q < kQps; ++q) {
      while (sides[q]->cq.poll(1, wc) == 1) {
        assert_int_equal(wc[0].status, IBV_WC_SUCCESS);
        ++acknowledged[q];
      }
      // Not more than the buffer has places for; they are free again when the peer has the message.
      while (sent[q] < each && sent[q] - received[q] < 60 && send_message(*sides[q], q, sent[q])) ++sent[q];
    }
    const int n = hub.cq.poll(16, wc);
    for (int i = 0; i < n; ++i) {
      assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
      assert_int_equal(wc[i].opcode, IBV_WC_RECV);
      const std::size_t q = hub.index.at(wc[i].qp_num);
      assert_int_equal(posted.erase(wc[i].wr_id), 1);
      assert_int_equal(wc[i].byte_len, length_of(q, received[q]));
      assert_true(is_message(hub.memory_octets.data() + wc[i].wr_id * kRoom, q, received[q]));
      ++received[q];
      ++total;
      post(wc[i].wr_id);
    }
  }
  assert_int_equal(posted.size(), 32);
  assert_int_equal(hub.wait(20).status, test::kNothing);
  hub.expect_no_event();
}

// Holds: VRB-20
// Requests are given out to the QPs that wait in turns, and a QP that comes later does not overtake.
void an_empty_queue_is_waited_for_in_line(void**) {
  Hub hub(64);
  auto sides = make_sides(hub, 3);
  for (std::size_t k = 0; k < 4; ++k)
    for (std::size_t q = 0; q < 3; ++q) assert_true(send_message(*sides[q], q, k));
  std::vector<std::size_t> received(3);
  for (std::size_t n = 0; n < 9; ++n) {
    hub.expect_in_line(3);
    assert_int_equal(hub.post(n), 0);
    const ibv_wc wc = hub.wait();
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    const std::size_t q = hub.index.at(wc.qp_num);
    assert_int_equal(received[q]++, n / 3);
    assert_true(is_message(hub.memory_octets.data() + n * kRoom, q, n / 3));
  }
  // A list at once: each of the three gets one of it.
  hub.expect_in_line(3);
  hub.post_all(9, 3);
  for (std::size_t n = 0; n < 3; ++n) ++received[hub.index.at(hub.wait().qp_num)];
  for (const std::size_t n : received) assert_int_equal(n, 4);
  hub.expect_no_event();
}

// A QP that waits may be destroyed, reset or closed; the next in line is served all the same.
void who_waits_may_leave(void**) {
  for (const int how : {0, 1, 2, 3}) {
    Hub hub(64);
    auto sides = make_sides(hub, 3);
    for (std::size_t q = 0; q < 3; ++q) {
      assert_true(send_message(*sides[q], q, 3));
      hub.expect_in_line(q + 1);
    }
    if (how == 0) hub.qps[0]->destroy();
    if (how == 1) assert_int_equal(hub.modify(0, IBV_QPS_RESET), 0);
    if (how == 2) assert_int_equal(hub.modify(0, IBV_QPS_ERR), 0);
    if (how == 3) assert_int_equal(hub.modify(0, IBV_QPS_SQD), 0);
    for (std::size_t q = 1; q < 3; ++q) {
      assert_int_equal(hub.post(q), 0);
      const ibv_wc wc = hub.wait();
      assert_int_equal(wc.status, IBV_WC_SUCCESS);
      assert_int_equal(hub.index.at(wc.qp_num), q);
    }
  }
}

// What has no memory to be served ends, and who stands behind it is served all the same.
void who_cannot_be_served_ends(void**) {
  struct Failing final : Kickable {
    void serve() override { throw std::bad_alloc(); }
    void broken() noexcept override { ended = true; }
    bool ended = false;
  } failing;
  Hub hub(64);
  auto sides = make_sides(hub, 1);
  engine().acquire();
  hub.srq->wait(failing);
  engine().leave();
  assert_true(send_message(*sides[0], 0, 0));
  hub.expect_in_line(2);
  hub.post_all(0, 2);
  assert_int_equal(hub.wait().status, IBV_WC_SUCCESS);
  assert_true(failing.ended);
  assert_true(send_message(*sides[0], 0, 1));
  assert_int_equal(hub.wait().status, IBV_WC_SUCCESS);
}

// Holds: VRB-19
// Below the limit there is one event, until it is armed again.
void vrb_19_limit(void**) {
  Hub hub(64);
  auto sides = make_sides(hub, 2);
  const auto consume = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      assert_true(send_message(*sides[i % 2], i % 2, i));
      assert_int_equal(hub.wait().status, IBV_WC_SUCCESS);
    }
  };
  hub.post_all(0, 10);
  assert_int_equal(hub.arm(65), EINVAL);
  assert_int_equal(hub.arm(5), 0);
  assert_int_equal(hub.query().srq_limit, 5);
  consume(5);  // 5 are left: not below
  hub.expect_no_event();
  consume(1);
  hub.expect_event(IBV_EVENT_SRQ_LIMIT_REACHED, Hub::kSrqHandle);
  assert_int_equal(hub.query().srq_limit, 0);
  consume(2);
  hub.expect_no_event();
  hub.post_all(10, 8);  // 10 again
  assert_int_equal(hub.arm(10), 0);
  hub.expect_no_event();
  consume(2);
  hub.expect_event(IBV_EVENT_SRQ_LIMIT_REACHED, Hub::kSrqHandle);
  hub.expect_no_event();
  assert_int_equal(hub.arm(8), 0);
  assert_int_equal(hub.arm(0), 0);
  consume(1);
  hub.expect_no_event();
  // Fewer are there when it is armed: at once.
  assert_int_equal(hub.arm(64), 0);
  hub.expect_event(IBV_EVENT_SRQ_LIMIT_REACHED, Hub::kSrqHandle);
  consume(1);
  hub.expect_no_event();
}

// Holds: VRB-12, VRB-31
// A QP in ERR gives back the request it had taken, then says so once; the others stay for other QPs.
void vrb_12_flush(void**) {
  Hub hub(64);
  test::Side good(std::size_t{64} * kRoom);
  hub.add_qp(good);
  const std::size_t ends = hub.qps.size();
  const auto peer_of = hub.add_peer();
  Peer& peer = *peer_of;
  hub.post_all(0, 5);
  peer.send(send_segment(1, pattern(40)));
  assert_int_equal(hub.wait().wr_id, 0);
  peer.send(send_segment(2, pattern(40), 0, false));  // the first part of a message
  peer.wait_until_read();
  assert_int_equal(hub.wait(30).status, test::kNothing);
  for (int again = 0; again < 2; ++again) assert_int_equal(hub.modify(ends, IBV_QPS_ERR), 0);
  const ibv_wc wc = hub.wait();
  assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
  assert_int_equal(wc.wr_id, 1);
  assert_int_equal(hub.index.at(wc.qp_num), ends);
  hub.expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, Hub::kQpHandle + ends);
  hub.expect_no_event();
  assert_int_equal(hub.wait(20).status, test::kNothing);
  for (std::size_t k = 0; k < 3; ++k) {
    assert_true(send_message(good, 0, k));
    const ibv_wc next = hub.wait();
    assert_int_equal(next.status, IBV_WC_SUCCESS);
    assert_int_equal(next.wr_id, k + 2);
  }
  // Once for each time: RESET begins anew.
  assert_int_equal(hub.modify(ends, IBV_QPS_RESET), 0);
  assert_int_equal(hub.modify(ends, IBV_QPS_INIT), 0);
  assert_int_equal(hub.modify(ends, IBV_QPS_ERR), 0);
  hub.expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, Hub::kQpHandle + ends);
  // A peer that goes away is another way to get there; a receive that is too short as well.
  good.qp->disconnect(true);
  hub.expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, Hub::kQpHandle);
  hub.expect_no_event();
}

// Holds: VRB-6, VRB-7
// What is refused, and how much fits.
void what_is_refused(void**) {
  Hub hub(5);
  assert_int_equal(hub.granted.max_wr, 5);
  assert_int_equal(hub.granted.max_sge, 2);
  std::vector<ibv_recv_wr> list(10);
  for (std::size_t i = 0; i < list.size(); ++i) list[i].next = i + 1 < list.size() ? &list[i + 1] : nullptr;
  ibv_recv_wr* bad = nullptr;
  for (const int count : {3, -1}) {
    list[2].num_sge = count;
    assert_int_equal(hub.srq->post(&list[0], &bad), EINVAL);
    assert_ptr_equal(bad, &list[2]);
  }
  list[2].num_sge = 0;
  assert_int_equal(hub.srq->post(&list[0], &bad), ENOMEM);  // 4 are there
  assert_ptr_equal(bad, &list[1]);
  assert_int_equal(hub.srq->post(&list[0], &bad), ENOMEM);
  assert_ptr_equal(bad, &list[0]);

  const std::size_t qp = hub.add_qp();
  assert_int_equal(hub.srq->users, 1);
  assert_int_equal(hub.modify(qp, IBV_QPS_INIT), 0);
  list[0].next = nullptr;
  assert_int_equal(hub.qps[qp]->post_recv(&list[0], &bad), EINVAL);
  assert_ptr_equal(bad, &list[0]);

  // Another depth: what is queued stays. Both or nothing.
  const auto modify = [&](std::uint32_t depth, std::uint32_t limit, int mask) {
    return hub.srq->modify(ibv_srq_attr{.max_wr = depth, .max_sge = 0, .srq_limit = limit}, mask);
  };
  assert_int_equal(modify(4, 0, IBV_SRQ_MAX_WR), EINVAL);
  assert_int_equal(modify(kMaxSrqWr + 1, 0, IBV_SRQ_MAX_WR), EINVAL);
  assert_int_equal(modify(16, 17, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), EINVAL);
  assert_int_equal(modify(0, 0, 4), EINVAL);
  assert_int_equal(hub.query().max_wr, 5);
  assert_int_equal(modify(13, 5, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
  assert_int_equal(hub.query().max_wr, 13);
  assert_int_equal(hub.query().max_sge, 2);
  assert_int_equal(hub.query().srq_limit, 5);
  list[0].next = &list[1];
  assert_int_equal(hub.srq->post(&list[0], &bad), ENOMEM);
  assert_ptr_equal(bad, &list[8]);

  for (ibv_srq_attr attr : {ibv_srq_attr{kMaxSrqWr + 1, 1, 0}, ibv_srq_attr{1, kMaxSge + 1, 0}})
    assert_int_equal(SharedReceiveQueue(hub.pd, 1).create(attr), EINVAL);
  ibv_srq_attr nothing{};
  assert_int_equal(SharedReceiveQueue(hub.pd, 1).create(nothing), 0);
  assert_true(nothing.max_wr >= 1 && nothing.max_sge >= 1);
}

// A resize under traffic keeps the order and loses nothing.
void resize_under_traffic(void**) {
  Hub hub(8);
  auto sides = make_sides(hub, 1);
  std::size_t posted = 0, received = 0;
  for (std::size_t round = 0; round < 200; ++round) {
    while (posted - received < 8 && hub.post(posted % 256) == 0) ++posted;
    const std::uint32_t depth = 8u << round % 5;
    assert_int_equal(hub.srq->modify(ibv_srq_attr{.max_wr = depth, .max_sge = 0, .srq_limit = 0}, IBV_SRQ_MAX_WR), 0);
    for (int i = 0; i < 3; ++i) {
      assert_true(send_message(*sides[0], 0, received));
      const ibv_wc wc = hub.wait();
      assert_int_equal(wc.status, IBV_WC_SUCCESS);
      assert_int_equal(wc.wr_id, received % 256);
      assert_true(is_message(hub.memory_octets.data() + wc.wr_id * kRoom, 0, received));
      ++received;
      assert_int_equal(sides[0]->wait().status, IBV_WC_SUCCESS);
    }
  }
}

// Holds: VRB-20, VRB-32
// Posters, pollers and senders on threads of their own; the limit is armed all the time.
void vrb_32_threads(void**) {
  constexpr std::size_t kQps = 16, kPosters = 3, kBuffers = 192;
  const std::size_t each = kInstrumented ? 100 : 2000;
  Hub hub(64, kBuffers);
  const auto sides = make_sides(hub, kQps);
  std::mutex mutex;  // of the buffers that may be posted
  std::vector<std::size_t> free;
  for (std::size_t i = 0; i < kBuffers; ++i) free.push_back(i);
  std::vector<std::atomic<std::size_t>> received(kQps);
  std::atomic<std::size_t> total{0}, wrong{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < kPosters; ++t)
    all.emplace_back([&] {
      while (!stop) {
        std::size_t buffer = kBuffers;
        {
          std::lock_guard guard(mutex);
          if (!free.empty()) buffer = free.back(), free.pop_back();
        }
        if (buffer == kBuffers) std::this_thread::yield();
        if (buffer == kBuffers) continue;
        int rc;
        while ((rc = hub.post(buffer)) == ENOMEM && !stop) std::this_thread::yield();
        if (rc != 0 && !stop) ++wrong;
      }
    });
  // One poller: with several, the order in which two of them get to look at their completions is open.
  all.emplace_back([&] {
    ibv_wc wc{};
    while (!stop) {
      if (hub.cq.poll(1, &wc) != 1) continue;
      const std::size_t q = hub.index.at(wc.qp_num), k = received[q];
      if (wc.status != IBV_WC_SUCCESS || wc.byte_len != length_of(q, k) ||
          !is_message(hub.memory_octets.data() + wc.wr_id * kRoom, q, k))
        ++wrong;
      {
        std::lock_guard guard(mutex);
        free.push_back(wc.wr_id);
      }
      ++received[q];
      ++total;
    }
  });
  all.emplace_back([&] {
    while (!stop) {
      hub.arm(32);
      std::this_thread::yield();
    }
  });
  for (std::size_t half = 0; half < 2; ++half)
    all.emplace_back([&, half] {
      std::vector<std::size_t> sent(kQps);
      ibv_wc wc[8];
      while (!stop)
        for (std::size_t q = half; q < kQps; q += 2) {
          while (sides[q]->cq.poll(8, wc) > 0) {
          }
          while (sent[q] < each && sent[q] - received[q] < 60 && send_message(*sides[q], q, sent[q])) ++sent[q];
        }
    });
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (total < kQps * each && wrong == 0 && std::chrono::steady_clock::now() < until) poll(nullptr, 0, 5);
  stop = true;
  for (auto& t : all) t.join();
  assert_int_equal(wrong, 0);
  assert_int_equal(total, kQps * each);
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("500", "60000");
  const CMUnitTest tests[] = {
      cmocka_unit_test(vrb_20_shared_by_many), cmocka_unit_test(an_empty_queue_is_waited_for_in_line),
      cmocka_unit_test(who_waits_may_leave),   cmocka_unit_test(who_cannot_be_served_ends),
      cmocka_unit_test(vrb_19_limit),          cmocka_unit_test(vrb_12_flush),
      cmocka_unit_test(what_is_refused),       cmocka_unit_test(resize_under_traffic),
      cmocka_unit_test(vrb_32_threads),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
