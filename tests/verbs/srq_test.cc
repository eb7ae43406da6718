// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Shared receive queues: sharing, waiting in line, the limit, the end of a QP, what is refused.
#include <errno.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "provider/engine/engine.h"
#include "provider/verbs/shared_receive_queue.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

using test::kInstrumented;

constexpr std::uint32_t kRoom = 1024;  // octets of a receive

// Everything on one device: an SRQ with a buffer for each request, and QPs that take from it.
struct Hub {
  explicit Hub(std::uint32_t depth, std::size_t buffers = 256)
      : async(test::channel(16)),
        context(test::any_device(), async),
        pd(context),
        qp_pd(context),
        cq(context, 65536, nullptr, 1),
        memory_octets(buffers * kRoom),
        srq(std::make_unique<SharedReceiveQueue>(pd, kSrqHandle)) {
    granted = ibv_srq_attr{.max_wr = depth, .max_sge = 2, .srq_limit = 0};
    assert_int_equal(srq->create(granted), 0);
    assert_int_equal(
        memory().add(pd, memory_octets.data(), memory_octets.size(), address(0), IBV_ACCESS_LOCAL_WRITE, &mr), 0);
  }
  ~Hub() {
    for (const auto& qp : qps) qp->destroy();
    assert_int_equal(srq->users, 0);
    srq.reset();
    memory().remove(mr);
    assert_int_equal(pd.users, 0);
  }

  // A QP in a PD of its own: the keys of an SRQ's requests belong to the SRQ's PD. Returns its index.
  std::size_t add_qp() {
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.cap = {16, 1u << 30, 1, 1u << 30, 0};  // what is said of receives is not looked at
    std::shared_ptr<QueuePair> qp;
    assert_int_equal(create_rc_qp(qp_pd, init, &cq, &cq, &qp, srq.get()), 0);
    assert_int_equal(init.cap.max_recv_wr, 0);
    qp->set_handle(kQpHandle + qps.size());
    index[qp->number()] = qps.size();
    qps.push_back(std::move(qp));
    return qps.size() - 1;
  }
  // And one whose stream leads to `other`. Both may speak at once: the RTR has gone first.
  std::size_t add_qp(test::Side& other) {
    const std::size_t i = add_qp();
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    mpa::StreamParams mine = test::params(true), theirs = test::params(false);
    mine.peer_to_peer = theirs.peer_to_peer = true;
    mine.rtr = theirs.rtr = mpa::kRtrWrite;
    assert_int_equal(other.qp->attach(llp::tcp_stream(fds[1]), theirs, other.observer), 0);
    assert_int_equal(qps[i]->attach(llp::tcp_stream(fds[0]), mine, std::make_shared<test::Observer>()), 0);
    return i;
  }
  std::uint64_t address(std::size_t buffer) {
    return reinterpret_cast<std::uintptr_t>(memory_octets.data() + buffer * kRoom);
  }
  // A receive of two pieces; its wr_id is its buffer.
  int post(std::size_t buffer) {
    ibv_sge sges[] = {{address(buffer), 100, mr->stag()}, {address(buffer) + 100, kRoom - 100, mr->stag()}};
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = buffer;
    wr.sg_list = sges;
    wr.num_sge = 2;
    return srq->post(&wr, &bad);
  }
  void post_all(std::size_t from, std::size_t n) {
    for (std::size_t i = from; i < from + n; ++i) assert_int_equal(post(i), 0);
  }
  ibv_wc wait(int milliseconds = test::kPatience) { return test::next_completion(cq, milliseconds); }
  // n QPs stand in line. A QP that was served steps up again when the engine has looked at what else came for it.
  void expect_in_line(std::size_t n) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    for (;;) {
      engine().acquire();
      const std::size_t now = srq->in_line();
      engine().leave();
      if (now == n) return;
      assert_true(std::chrono::steady_clock::now() < until);
      assert_int_equal(wait(1).status, test::kNothing);
    }
  }
  int modify(std::size_t qp, ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    return qps[qp]->modify(attr, IBV_QP_STATE);
  }
  int arm(std::uint32_t limit) {
    return srq->modify(ibv_srq_attr{.max_wr = 0, .max_sge = 0, .srq_limit = limit}, IBV_SRQ_LIMIT);
  }
  ibv_srq_attr query() {
    ibv_srq_attr attr{};
    srq->query(attr);
    return attr;
  }
  void expect_event(ibv_event_type type, std::uint64_t handle) {
    const auto e = test::next_event(*async, test::kPatience);
    assert_int_equal(e.first, type);
    assert_int_equal(e.second, handle);
  }
  void expect_no_event() { assert_int_equal(test::next_event(*async, 20).first, -1); }

  static constexpr std::uint64_t kSrqHandle = 0x777, kQpHandle = 0x1000;
  std::shared_ptr<EventChannel> async;
  Context context;
  Pd pd, qp_pd;
  CompletionQueue cq;
  std::vector<std::byte> memory_octets;
  MemoryRegion* mr = nullptr;
  ibv_srq_attr granted{};
  std::unique_ptr<SharedReceiveQueue> srq;
  std::vector<std::shared_ptr<QueuePair>> qps;
  std::map<std::uint32_t, std::size_t> index;  // by QP number
};

std::vector<std::unique_ptr<test::Side>> make_sides(Hub& hub, std::size_t n) {
  std::vector<std::unique_ptr<test::Side>> sides;
  for (std::size_t i = 0; i < n; ++i) {
    sides.push_back(std::make_unique<test::Side>(std::size_t{64} * kRoom));
    hub.add_qp(*sides.back());
  }
  return sides;
}

// Message k of a QP: its length and octets.
std::uint32_t length_of(std::size_t qp, std::size_t k) {
  return static_cast<std::uint32_t>((qp * 131 + k * 37) % (kRoom + 1));
}
std::byte octet_of(std::size_t qp, std::size_t k, std::size_t at) {
  return static_cast<std::byte>(qp * 7 + k * 31 + at * 3 + at / 256);
}
bool is_message(const std::byte* got, std::size_t qp, std::size_t k) {
  for (std::size_t at = 0; at < length_of(qp, k); ++at)
    if (got[at] != octet_of(qp, k, at)) return false;
  return true;
}
// Message k leaves from a place of its own in the side's buffer. False: its send queue is full.
bool send_message(test::Side& side, std::size_t qp, std::size_t k) {
  const std::size_t place = k % 64 * kRoom;
  for (std::size_t at = 0; at < length_of(qp, k); ++at) *side.at(place + at) = octet_of(qp, k, at);
  return side.send(IBV_WR_SEND, {side.sge(place, length_of(qp, k))}, 0, 0, IBV_SEND_SIGNALED, k) == 0;
}

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

// Holds: VRB-20
// The wait is over: that stream ends, the queue and the others do not.
void an_empty_queue_ends_only_that_stream(void**) {
  Hub hub(64);
  auto sides = make_sides(hub, 2);
  assert_true(send_message(*sides[0], 0, 5));
  hub.expect_event(IBV_EVENT_QP_REQ_ERR, Hub::kQpHandle);
  hub.expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, Hub::kQpHandle);
  assert_true(sides[0]->reaches(IBV_QPS_ERR));
  hub.post_all(0, 2);
  assert_true(send_message(*sides[1], 1, 0));
  assert_int_equal(hub.wait().status, IBV_WC_SUCCESS);
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
  const std::size_t ends = hub.add_qp();
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
  Peer peer(fds[1], false);
  auto observer = std::make_shared<test::Observer>();
  assert_int_equal(hub.qps[ends]->attach(llp::tcp_stream(fds[0]), test::params(true), observer), 0);
  hub.post_all(0, 5);
  peer.send(send_segment(1, pattern(40)));
  assert_int_equal(hub.wait().wr_id, 0);
  peer.send(send_segment(2, pattern(40), 0, false));  // the first part of a message
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
  assert_int_equal(hub.granted.max_wr, 8);
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
  assert_ptr_equal(bad, &list[4]);
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
  assert_int_equal(modify(7, 0, IBV_SRQ_MAX_WR), EINVAL);
  assert_int_equal(modify(kMaxSrqWr + 1, 0, IBV_SRQ_MAX_WR), EINVAL);
  assert_int_equal(modify(16, 17, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), EINVAL);
  assert_int_equal(modify(0, 0, 4), EINVAL);
  assert_int_equal(hub.query().max_wr, 8);
  assert_int_equal(modify(16, 8, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
  assert_int_equal(hub.query().max_wr, 16);
  assert_int_equal(hub.query().max_sge, 2);
  assert_int_equal(hub.query().srq_limit, 8);
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
  set_waits("500", "1000");
  const CMUnitTest tests[] = {
      cmocka_unit_test(vrb_20_shared_by_many),
      cmocka_unit_test(an_empty_queue_is_waited_for_in_line),
      cmocka_unit_test(an_empty_queue_ends_only_that_stream),
      cmocka_unit_test(who_waits_may_leave),
      cmocka_unit_test(vrb_19_limit),
      cmocka_unit_test(vrb_12_flush),
      cmocka_unit_test(what_is_refused),
      cmocka_unit_test(resize_under_traffic),
      cmocka_unit_test(vrb_32_threads),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
