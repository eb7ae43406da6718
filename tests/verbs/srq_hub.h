// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A shared receive queue, the QPs that take from it, and messages for them.
#pragma once

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "provider/engine/engine.h"
#include "provider/verbs/shared_receive_queue.h"
#include "tests/wire/scene.h"

namespace ewarp::wire::srq {

inline constexpr std::uint32_t kRoom = 1024;  // octets of a receive

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
  // patient: ours lets Sends wait.
  std::size_t add_qp(test::Side& other, bool patient = false) {
    const std::size_t i = add_qp();
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    mpa::StreamParams mine = test::params(true), theirs = test::params(false);
    mine.peer_to_peer = theirs.peer_to_peer = true;
    mine.rtr = theirs.rtr = mpa::kRtrWrite;
    assert_int_equal(other.qp->attach(llp::tcp_stream(fds[1]), theirs, other.observer), 0);
    const auto observer = std::make_shared<test::Observer>();
    observer->patient = patient;
    assert_int_equal(qps[i]->attach(llp::tcp_stream(fds[0]), mine, observer), 0);
    return i;
  }
  // And one whose peer is played by a script.
  std::unique_ptr<Peer> add_peer() {
    const std::size_t i = add_qp();
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    auto peer = std::make_unique<Peer>(fds[1], false);
    assert_int_equal(qps[i]->attach(llp::tcp_stream(fds[0]), test::params(true), std::make_shared<test::Observer>()),
                     0);
    return peer;
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
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(test::kPatience);
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

inline std::vector<std::unique_ptr<test::Side>> make_sides(Hub& hub, std::size_t n) {
  std::vector<std::unique_ptr<test::Side>> sides;
  for (std::size_t i = 0; i < n; ++i) {
    sides.push_back(std::make_unique<test::Side>(std::size_t{64} * kRoom));
    hub.add_qp(*sides.back());
  }
  return sides;
}

// Message k of a QP: its length and octets.
inline std::uint32_t length_of(std::size_t qp, std::size_t k) {
  return static_cast<std::uint32_t>((qp * 131 + k * 37) % (kRoom + 1));
}
inline std::byte octet_of(std::size_t qp, std::size_t k, std::size_t at) {
  return static_cast<std::byte>(qp * 7 + k * 31 + at * 3 + at / 256);
}
inline bool is_message(const std::byte* got, std::size_t qp, std::size_t k) {
  for (std::size_t at = 0; at < length_of(qp, k); ++at)
    if (got[at] != octet_of(qp, k, at)) return false;
  return true;
}
// Message k leaves from a place of its own in the side's buffer. False: its send queue is full.
inline bool send_message(test::Side& side, std::size_t qp, std::size_t k) {
  const std::size_t place = k % 64 * kRoom;
  for (std::size_t at = 0; at < length_of(qp, k); ++at) *side.at(place + at) = octet_of(qp, k, at);
  return side.send(IBV_WR_SEND, {side.sge(place, length_of(qp, k))}, 0, 0, IBV_SEND_SIGNALED, k) == 0;
}

}  // namespace ewarp::wire::srq
