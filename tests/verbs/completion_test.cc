// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Completion queues: overflow, resize, arming, events, and what is left when a QP goes.
#include <errno.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "provider/engine/engine.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr std::uint64_t kHandle = 0xabcdef;

struct Queue {
  explicit Queue(int cqe) : context(test::any_device(), async), cq(context, cqe, channel, kHandle) {}
  // A completion, as the engine's holder makes them.
  bool push(std::uint64_t id, bool solicited = false, std::uint32_t qp = 1) {
    ibv_wc wc{};
    wc.wr_id = id;
    wc.qp_num = qp;
    bool pushed = false;
    engine().run([&] { pushed = cq.push(wc, solicited); });
    return pushed;
  }
  int poll(std::uint64_t* id) {
    ibv_wc wc;
    const int n = cq.poll(1, &wc);
    if (n == 1) *id = wc.wr_id;
    return n;
  }
  bool event(int milliseconds = 0) {
    std::uint64_t handle = 0;
    pollfd p{channel->read_fd(), POLLIN, 0};
    return ::poll(&p, 1, milliseconds) == 1 && read(p.fd, &handle, sizeof handle) == sizeof handle && handle == kHandle;
  }
  std::shared_ptr<EventChannel> async = test::channel(16), channel = test::channel(8);
  Context context;
  CompletionQueue cq;
};

void a_ring_that_goes_round(void**) {
  for (const int cqe : {1, 2, 3, 7, 64}) {
    Queue q(cqe);
    std::uint64_t in = 0, out = 0, id = 0;
    for (int round = 0; round < 50; ++round) {
      for (int n = 0; n < cqe; ++n) assert_true(q.push(in++));
      for (int n = 0; n < cqe; ++n) {
        assert_int_equal(q.poll(&id), 1);
        assert_int_equal(id, out++);
      }
      assert_int_equal(q.poll(&id), 0);
    }
    ibv_wc some[100];
    for (int n = 0; n < cqe; ++n) q.push(in++);
    assert_int_equal(q.cq.poll(0, some), 0);
    assert_int_equal(q.cq.poll(-1, some), -EINVAL);
    assert_int_equal(q.cq.poll(100, some), cqe);
    assert_int_equal(some[cqe - 1].wr_id, in - 1);
  }
}

void resize(void**) {
  Queue q(4);
  std::uint64_t in = 0, out = 0, id = 0;
  q.push(in++);
  assert_int_equal(q.poll(&id), 1);  // the ring no longer begins at its first place
  ++out;
  for (int i = 0; i < 4; ++i) q.push(in++);
  assert_int_equal(q.cq.resize(3), EINVAL);
  assert_int_equal(q.cq.resize(0), EINVAL);
  assert_int_equal(q.cq.resize(-5), EINVAL);
  assert_int_equal(q.cq.resize(kMaxCqe + 1), EINVAL);
  assert_int_equal(q.cq.capacity(), 4);
  assert_int_equal(q.cq.resize(9), 0);
  assert_true(q.cq.capacity() >= 9);
  for (int i = 0; i < 5; ++i) assert_true(q.push(in++));
  assert_int_equal(q.cq.resize(9), 0);
  while (q.poll(&id) == 1) assert_int_equal(id, out++);
  assert_int_equal(out, in);
  assert_int_equal(q.cq.resize(1), 0);
  assert_true(q.push(in));
  assert_int_equal(q.poll(&id), 1);
}

// Holds: VRB-5
// Of the one QP, not of the others.
void purge(void**) {
  Queue q(10);
  std::uint64_t id = 0;
  for (std::uint64_t i = 0; i < 7; ++i) q.push(i);
  for (int i = 0; i < 7; ++i) q.poll(&id);
  for (std::uint64_t i = 0; i < 10; ++i) q.push(i, false, static_cast<std::uint32_t>(i % 3));
  q.cq.purge(1);
  for (const std::uint64_t want : {0, 2, 3, 5, 6, 8, 9}) {
    assert_int_equal(q.poll(&id), 1);
    assert_int_equal(id, want);
  }
  assert_int_equal(q.poll(&id), 0);
}

// Holds: VRB-16, VRB-17
void vrb_16_17_arming(void**) {
  Queue q(100);
  q.push(1);
  q.cq.arm(false);
  assert_false(q.event());  // it was there before
  q.push(2);
  assert_true(q.event());
  q.push(3);
  assert_false(q.event());  // one event per arm
  q.cq.arm(true);
  q.push(4);
  assert_false(q.event());
  q.push(5, true);
  assert_true(q.event());
  q.cq.arm(true);
  q.cq.arm(false);
  q.push(6);
  assert_true(q.event());  // upgraded
  q.cq.arm(false);
  q.cq.arm(true);
  q.push(7);
  assert_true(q.event());  // not downgraded
  q.cq.arm(false);
  q.cq.arm(false);
  q.push(8);
  q.push(9);
  assert_true(q.event());
  assert_false(q.event());
}

// Holds: VRB-18
// What nobody has read is taken back, what was read counts.
void vrb_18_events_of_a_queue_that_goes(void**) {
  Queue q(100);
  for (int i = 0; i < 5; ++i) {
    q.cq.arm(false);
    q.push(1);
  }
  assert_true(q.event());
  assert_true(q.event());
  assert_int_equal(q.cq.retire_events().value(), 2);
  assert_false(q.event());
}

// Without a channel arming has no effect and does no harm.
void arming_without_a_channel(void**) {
  Context context(test::any_device(), nullptr);
  CompletionQueue cq(context, 4, nullptr, 1);
  cq.arm(false);
  ibv_wc wc{};
  engine().run([&] { assert_true(cq.push(wc, true)); });
  assert_int_equal(cq.retire_events().value(), 0);
}

// Holds: VRB-15
// Two threads; whoever sleeps after arm and an empty poll is woken.
void vrb_15_no_wake_up_is_lost(void**) {
#if defined(__SANITIZE_THREAD__)
  constexpr std::uint64_t kRounds = 200'000;
#else
  constexpr std::uint64_t kRounds = 1'000'000;
#endif
  Queue q(64);
  std::atomic<std::uint64_t> taken{0};
  std::thread producer([&] {
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      // At most 32 ahead; alternately in bursts and one by one, so that the other side is met awake and asleep.
      const std::uint64_t ahead = i / 1000 % 2 == 0 ? 32 : 1;
      while (i - taken.load(std::memory_order_acquire) >= ahead) std::this_thread::yield();
      q.push(i);
    }
  });
  std::uint64_t next = 0, slept = 0;
  ibv_wc wc[16];
  bool lost = false;
  while (next < kRounds && !lost) {
    int n = q.cq.poll(16, wc);
    if (n == 0) {
      q.cq.arm(false);
      n = q.cq.poll(16, wc);
      if (n == 0) {
        ++slept;
        lost = !q.event(10000);
        continue;
      }
    }
    for (int i = 0; i < n; ++i) {
      if (wc[i].wr_id != next) fail_msg("completion %lu where %lu was due", wc[i].wr_id, next);
      ++next;
    }
    taken.store(next, std::memory_order_release);
  }
  if (lost) fail_msg("asleep after %lu completions, %lu sleeps", next, slept);
  producer.join();
  print_message("%lu rounds, %lu sleeps\n", next, slept);
  assert_true(slept > 1000);
}

// Holds: VRB-14
// The queue is dead and says so, its QPs go to ERR, nothing hangs.
void vrb_14_overflow(void**) {
  for (const bool receiving : {false, true}) {
    test::Side side(65536);
    CompletionQueue small(side.context, 3, nullptr, 0x777);
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.cap = {64, 64, 1, 1, 0};
    std::shared_ptr<QueuePair> qp, neighbour;
    assert_int_equal(create_rc_qp(side.pd, init, &small, &small, &qp), 0);
    assert_int_equal(create_rc_qp(side.pd, init, &small, &small, &neighbour), 0);
    qp->set_handle(test::Side::kHandle);
    neighbour->set_handle(test::Side::kHandle + 1);
    int fds[2], more[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, more), 0);
    Peer peer(fds[1], false), other(more[1], false);
    const auto observer = std::make_shared<test::Observer>();
    assert_int_equal(qp->attach(llp::tcp_stream(fds[0]), test::params(true), observer), 0);
    assert_int_equal(neighbour->attach(llp::tcp_stream(more[0]), test::params(true), nullptr), 0);
    for (std::uint64_t i = 0; i < 5; ++i) {
      ibv_sge sge = side.sge(0, 16);
      ibv_recv_wr rr{};
      ibv_recv_wr* bad_recv = nullptr;
      rr.wr_id = i;
      rr.sg_list = &sge;
      rr.num_sge = 1;
      assert_int_equal(qp->post_recv(&rr, &bad_recv), 0);
    }
    for (std::uint64_t i = 0; i < 5; ++i) {
      if (receiving) {
        peer.send(send_segment(static_cast<std::uint32_t>(i + 1), pattern(3)));
        continue;
      }
      ibv_send_wr wr{}, *bad = nullptr;
      wr.wr_id = i;
      wr.opcode = IBV_WR_SEND;
      wr.send_flags = IBV_SEND_SIGNALED;
      assert_int_equal(qp->post_send(&wr, &bad), 0);
    }
    // CQ_ERR of the queue and QP_FATAL of the QP, in either order.
    bool cq_error = false, fatal = false;
    for (int i = 0; i < 2; ++i) {
      ib_uverbs_async_event_desc e{};
      pollfd p{side.async->read_fd(), POLLIN, 0};
      assert_int_equal(::poll(&p, 1, test::kPatience), 1);
      assert_int_equal(read(p.fd, &e, sizeof e), sizeof e);
      cq_error |= e.event_type == IBV_EVENT_CQ_ERR && e.element == 0x777;
      fatal |= e.event_type == IBV_EVENT_QP_FATAL && e.element == test::Side::kHandle;
    }
    assert_true(cq_error && fatal);
    ibv_qp_attr attr{};
    ibv_qp_init_attr got{};
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    do qp->query(attr, got);
    while (attr.qp_state != IBV_QPS_ERR && std::chrono::steady_clock::now() < until);
    assert_int_equal(attr.qp_state, IBV_QPS_ERR);
    // What was taken is still there and whole; then an error, for good.
    ibv_wc wc[10];
    assert_int_equal(small.poll(10, wc), 3);
    for (std::uint64_t i = 0; i < 3; ++i) {
      assert_int_equal(wc[i].wr_id, i);
      assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
    }
    assert_true(small.poll(10, wc) < 0);
    peer.discard();
    // The neighbour's next completion has nowhere to go either.
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    assert_int_equal(neighbour->post_send(&wr, &bad), 0);
    other.discard();
    neighbour->query(attr, got);
    assert_int_equal(attr.qp_state, IBV_QPS_ERR);
    qp->destroy();
    neighbour->destroy();
  }
}

// Holds: RDM-25, VRB-9, VRB-10, VRB-11
// At the size of a queue: everything comes back, once and in order, and a CQ that is as large as
// its queues takes it all.
void vrb_11_a_full_flush(void**) {
  test::Side side(65536);
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.cap = {512, 512, 1, 1, 0};
  CompletionQueue cq(side.context, 1024, nullptr, 1);
  std::shared_ptr<QueuePair> qp;
  assert_int_equal(create_rc_qp(side.pd, init, &cq, &cq, &qp), 0);
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  Peer peer(fds[1], false);
  assert_int_equal(qp->attach(llp::tcp_stream(fds[0]), test::params(false), nullptr),
                   0);  // sends nothing before the peer does
  for (std::uint64_t i = 0; i < 512; ++i) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = i;
    wr.opcode = i % 3 == 0 ? IBV_WR_SEND : i % 3 == 1 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    wr.send_flags = i % 2 == 0 ? 0u : unsigned{IBV_SEND_SIGNALED};
    assert_int_equal(qp->post_send(&wr, &bad), 0);
    ibv_recv_wr rr{};
    ibv_recv_wr* bad_recv = nullptr;
    rr.wr_id = 1000 + i;
    assert_int_equal(qp->post_recv(&rr, &bad_recv), 0);
  }
  qp->disconnect(false);
  std::uint64_t sends = 0, receives = 1000;
  ibv_wc wc;
  while (cq.poll(1, &wc) == 1) {
    assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(wc.qp_num, qp->number());
    if (wc.wr_id < 1000)
      assert_int_equal(wc.wr_id, sends++);
    else
      assert_int_equal(wc.wr_id, receives++);
  }
  assert_int_equal(sends, 512);
  assert_int_equal(receives, 1512);
  qp->destroy();
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("500", "0");
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_ring_that_goes_round),
      cmocka_unit_test(resize),
      cmocka_unit_test(purge),
      cmocka_unit_test(vrb_16_17_arming),
      cmocka_unit_test(vrb_18_events_of_a_queue_that_goes),
      cmocka_unit_test(arming_without_a_channel),
      cmocka_unit_test(vrb_15_no_wake_up_is_lost),
      cmocka_unit_test(vrb_14_overflow),
      cmocka_unit_test(vrb_11_a_full_flush),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
