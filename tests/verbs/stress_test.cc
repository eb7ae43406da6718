// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Many threads, many queue pairs, many connections.
#include <errno.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

using test::kInstrumented;
using test::open_files;

using Clock = std::chrono::steady_clock;

std::size_t threads() {
  return test::entries_of("/proc/self/task");
}

bool eventually(const std::function<bool()>& what, int seconds = 10) {
  const auto until = Clock::now() + std::chrono::seconds(seconds);
  while (!what()) {
    if (Clock::now() > until) return false;
    poll(nullptr, 0, 1);
  }
  return true;
}

// What the messages of the test below carry: who sent it, which of the sender's it is, and octets that follow from
// both.
struct Message {
  static constexpr std::uint32_t kOctets = 100;
  std::uint32_t sender = 0, number = 0;

  void put(std::byte* at) const {
    std::memcpy(at, this, sizeof *this);
    std::memset(at + sizeof *this, filler(), kOctets - sizeof *this);
  }
  // False: these octets are no message.
  bool get(const std::byte* at) {
    std::memcpy(this, at, sizeof *this);
    return std::all_of(at + sizeof *this, at + kOctets, [this](std::byte b) { return b == std::byte(filler()); });
  }
  unsigned char filler() const { return static_cast<unsigned char>(7 * number + sender + 1); }
};

// What one poller has seen of a queue: of each sender, numbers that only rise.
class InOrder {
 public:
  explicit InOrder(std::size_t senders) : next_(senders) {}
  bool take(std::uint64_t sender, std::uint64_t number) {
    if (sender >= next_.size() || number < next_[sender]) return false;
    next_[sender] = number + 1;
    return true;
  }

 private:
  std::vector<std::uint64_t> next_;
};

// Holds: VRB-9, VRB-32
// Several threads post to both queues of both ends and poll both CQs. Everything comes out once, in order per
// sender, and unharmed.
void vrb_32_posters_and_pollers(void**) {
  constexpr unsigned kThreads = 3;
  const std::uint64_t kEach = kInstrumented ? 1500 : 8000;
  const auto total = kThreads * kEach;
  constexpr std::size_t kSlot = 128, kSlots = 65536;  // every message has a place of its own, behind what is common
  const auto is_send = [](std::uint64_t i) { return i % 5 != 1 && i % 5 != 2; };
  // The last one too: when it is done, so is everything.
  const auto is_signaled = [=](std::uint64_t i) { return i % 7 == 0 || i + 1 == kEach; };
  for (const bool crc : {false, true}) {
    test::Side a(kSlots + total * kSlot), b(kSlots + total * kSlot);
    // Nothing keeps the posters from running ahead of the pollers.
    for (test::Side* s : {&a, &b}) assert_int_equal(s->cq.resize(1 << 16), 0);
    const auto slot = [](std::uint64_t at) { return kSlots + at * kSlot; };
    const auto source = [](unsigned t) { return 1024 * (t + 1); };         // of Writes, at a
    const auto sink = [](unsigned t) { return 1024 * (t + 1) + 512; };     // of Reads, at a
    const auto target = [](unsigned t) { return 8192 * (t + 1); };         // of Writes, at b
    const auto origin = [](unsigned t) { return 8192 * (t + 1) + 4096; };  // of Reads, at b
    for (unsigned t = 0; t < kThreads; ++t) {
      Message{t, 1}.put(a.at(source(t)));
      Message{t, 2}.put(b.at(origin(t)));
    }
    test::join(a, b, test::params(true, crc), test::params(false, crc));
    std::atomic<std::uint64_t> sent{0}, received{0}, ended{0}, bad{0};
    std::vector<std::atomic<unsigned>> arrived(total);
    std::atomic<bool> stop{false};
    // A receive has to be there before its Send: posters of Sends keep behind those of receives.
    std::atomic<std::uint64_t> receives{0};
    std::vector<std::thread> all;
    for (unsigned t = 0; t < kThreads; ++t) {
      all.emplace_back([&, t] {
        for (std::uint64_t i = 0; i < kEach && !stop; ++i) {
          const std::uint64_t at = t * kEach + i;
          while (b.receive({b.sge(slot(at), kSlot)}, at) == ENOMEM && !stop) std::this_thread::yield();
          ++receives;
        }
      });
      all.emplace_back([&, t] {
        for (std::uint64_t i = 0; i < kEach && !stop; ++i) {
          while (sent >= receives && !stop) std::this_thread::yield();
          ++sent;
          unsigned flags = is_signaled(i) ? unsigned{IBV_SEND_SIGNALED} : 0u;
          const std::uint64_t id = t * kEach + i;
          ibv_wr_opcode op = IBV_WR_SEND;
          std::size_t local = slot(id), remote = 0;
          if (i % 5 == 1) op = IBV_WR_RDMA_WRITE, local = source(t), remote = target(t);
          if (i % 5 == 2) op = IBV_WR_RDMA_READ, local = sink(t), remote = origin(t);
          if (is_send(i)) {
            Message{t, static_cast<std::uint32_t>(i)}.put(a.at(local));
            if (i % 2 == 0) flags |= IBV_SEND_INLINE;
          }
          int rc;
          while ((rc = a.send(op, {a.sge(local, Message::kOctets)}, b.address(remote), b.mr->stag(), flags, id)) ==
                     ENOMEM &&
                 !stop)
            std::this_thread::yield();
          if (rc != 0) ++bad;
          if (op == IBV_WR_SEND) continue;
          --sent;
        }
      });
    }
    // A completion whose wr_id is the request's, or the place of what has arrived.
    const auto ended_well = [&](const ibv_wc& wc, InOrder& order) {
      return order.take(wc.wr_id / kEach, wc.wr_id % kEach);
    };
    const auto arrived_well = [&](const ibv_wc& wc, InOrder& order) {
      Message m;
      if (wc.byte_len != Message::kOctets || !m.get(b.at(slot(wc.wr_id)))) return false;
      if (m.number >= kEach || !order.take(m.sender, m.number)) return false;
      return arrived[m.sender * kEach + m.number].fetch_add(1) == 0;
    };
    const auto poller = [&](test::Side& s, std::atomic<std::uint64_t>& count, const auto& good) {
      InOrder order(kThreads);
      ibv_wc wc[8];
      while (!stop) {
        const int n = s.cq.poll(8, wc);
        for (int i = 0; i < n; ++i) {
          if (wc[i].status != IBV_WC_SUCCESS || !good(wc[i], order)) ++bad;
          ++count;
        }
      }
    };
    for (int i = 0; i < 2; ++i) {
      all.emplace_back([&] { poller(a, ended, ended_well); });
      all.emplace_back([&] { poller(b, received, arrived_well); });
    }
    std::uint64_t want_ended = 0, want_received = 0;
    for (std::uint64_t i = 0; i < kEach; ++i) {
      want_ended += is_signaled(i);
      want_received += is_send(i);
    }
    const bool done = eventually(
        [&] { return bad > 0 || (ended == kThreads * want_ended && received == kThreads * want_received); }, 120);
    stop = true;
    for (auto& t : all) t.join();
    if (!done)
      fail_msg("%lu of %lu sends and %lu of %lu receives", ended.load(), kThreads * want_ended, received.load(),
               kThreads * want_received);
    assert_int_equal(bad, 0);
    assert_true(receives <= total);
    for (std::uint64_t at = 0; at < total; ++at) assert_int_equal(arrived[at], is_send(at % kEach));
    for (unsigned t = 0; t < kThreads; ++t) {
      assert_memory_equal(b.at(target(t)), a.at(source(t)), Message::kOctets);
      assert_memory_equal(a.at(sink(t)), b.at(origin(t)), Message::kOctets);
    }
  }
}

// Holds: VRB-4, VRB-32
// The stream is aborted, the QP reset or destroyed, while others post and poll.
void vrb_32_ends_under_fire(void**) {
  for (int round = 0; round < (kInstrumented ? 40 : 150); ++round) {
    test::Side a(65536), b(65536);
    test::join(a, b, test::params(true, round % 2 == 0), test::params(false, round % 2 == 0));
    std::atomic<bool> stop{false};
    std::atomic<unsigned> posts{0};
    std::vector<std::thread> all;
    for (test::Side* s : {&a, &b}) {
      test::Side* other = s == &a ? &b : &a;
      all.emplace_back([&, s, other] {
        for (unsigned i = 0; !stop; ++i) {
          s->send(i % 2 == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, {s->sge(0, 3000)}, other->address(0),
                  other->mr->stag(), 0);
          ++posts;
        }
      });
      all.emplace_back([&, s] {
        while (!stop) s->receive({s->sge(0, 64)});
      });
      all.emplace_back([&, s] {
        ibv_wc wc[16];
        while (!stop) s->cq.poll(16, wc);
      });
    }
    assert_true(eventually([&] { return posts > 200; }));
    ibv_qp_attr attr{};
    switch (round % 4) {
      case 0:
        a.qp->disconnect(false);
        break;
      case 1:
        a.qp->disconnect(true);
        break;
      case 2:
        attr.qp_state = IBV_QPS_ERR;
        b.qp->modify(attr, IBV_QP_STATE);
        break;
      case 3:
        attr.qp_state = IBV_QPS_RESET;
        b.qp->modify(attr, IBV_QP_STATE);
        break;
    }
    const bool ended = eventually([&] { return a.observer->disconnected == 1 && b.observer->disconnected == 1; }, 30);
    stop = true;
    for (auto& t : all) t.join();
    if (!ended)
      fail_msg("round %d: %d and %d", round, a.observer->disconnected.load(), b.observer->disconnected.load());
    if (round % 4 != 3) continue;
    // VRB-4: after RESET nothing is left, whatever was posted meanwhile: a new stream carries nothing of it.
    ibv_wc wc;
    assert_int_equal(b.cq.poll(1, &wc), 0);
    assert_int_equal(b.state(), IBV_QPS_RESET);
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    Peer peer(fds[1], false);
    assert_int_equal(b.qp->attach(llp::tcp_stream(fds[0]), test::params(true), nullptr), 0);
    assert_int_equal(b.send(IBV_WR_SEND, {b.sge(0, 5)}, 0, 0, IBV_SEND_SIGNALED, 77), 0);
    assert_int_equal(peer.next_segment().payload.size(), 5);
    assert_int_equal(b.wait().wr_id, 77);
  }
}

// Two hundred streams share one CQ and one engine; each gets its turn.
void many_queue_pairs_on_one_queue(void**) {
  constexpr std::size_t kPairs = 200;
  const std::uint64_t kRounds = kInstrumented ? 20 : 100;
  auto async = test::channel(16);
  Context context(test::any_device(), async);
  Pd pd(context);
  CompletionQueue cq(context, 2 * kPairs * 4, nullptr, 1);
  std::vector<std::byte> buffer(kPairs * 2 * 4096);
  MemoryRegion* mr = nullptr;
  assert_int_equal(memory().add(pd, buffer.data(), buffer.size(), 0, IBV_ACCESS_LOCAL_WRITE, &mr), 0);
  std::vector<std::shared_ptr<QueuePair>> qps;
  std::map<std::uint32_t, std::size_t> index;
  const auto here = [&](std::size_t i) { return ibv_sge{4096 * i, 4096, mr->stag()}; };
  const auto receive = [&](std::size_t i) {
    ibv_sge sge = here(i);
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    wr.wr_id = i;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    assert_int_equal(qps[i]->post_recv(&wr, &bad), 0);
  };
  const auto send = [&](std::size_t i, std::uint64_t round) {
    ibv_sge sge = here(i);
    sge.length = static_cast<std::uint32_t>(1 + (round * 37 + i) % 2000);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = i;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    assert_int_equal(qps[i]->post_send(&wr, &bad), 0);
  };
  for (std::size_t i = 0; i < kPairs; ++i) {
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    for (const bool initiator : {true, false}) {
      ibv_qp_init_attr init{};
      init.qp_type = IBV_QPT_RC;
      init.cap = {4, 4, 1, 1, 0};
      std::shared_ptr<QueuePair> qp;
      assert_int_equal(create_rc_qp(pd, init, &cq, &cq, &qp), 0);
      index[qp->number()] = qps.size();
      qps.push_back(qp);
      assert_int_equal(
          qp->attach(llp::tcp_stream(fds[initiator ? 0 : 1]), test::params(initiator, i % 2 == 0), nullptr), 0);
      receive(qps.size() - 1);
    }
  }
  // Ping-pong on every pair at once: whoever receives answers.
  std::vector<std::uint64_t> rounds(qps.size());
  for (std::size_t i = 0; i < qps.size(); i += 2) send(i, 0);
  std::size_t finished = 0;
  const auto until = Clock::now() + std::chrono::seconds(120);
  while (finished < qps.size() && Clock::now() < until) {
    ibv_wc wc[32];
    const int n = cq.poll(32, wc);
    assert_true(n >= 0);
    for (int k = 0; k < n; ++k) {
      if (wc[k].status != IBV_WC_SUCCESS) fail_msg("QP %u: status %d", wc[k].qp_num, wc[k].status);
      const std::size_t i = index.at(wc[k].qp_num);
      assert_int_equal(wc[k].wr_id, i);
      assert_int_equal(wc[k].byte_len, 1 + (rounds[i] * 37 + (i ^ 1)) % 2000);
      if (++rounds[i] == kRounds) ++finished;
      receive(i);
      if (i % 2 == 1)
        send(i, rounds[i] - 1);
      else if (rounds[i] < kRounds)
        send(i, rounds[i]);
    }
  }
  if (finished < qps.size()) fail_msg("%zu of %zu finished", finished, qps.size());
  for (auto& qp : qps) qp->destroy();
  qps.clear();
  memory().remove(mr);
  assert_int_equal(cq.users, 0);
  assert_int_equal(pd.users, 0);
}

// Descriptors, threads and memory are back where they were.
void connections_leave_nothing_behind(void**) {
  const auto once = [](unsigned i) {
    test::Side a(8192), b(8192);
    test::join(a, b, test::params(true, i % 2 == 0), test::params(false, i % 2 == 0));
    assert_int_equal(b.receive({b.sge(0, 64)}), 0);
    assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 64)}), 0);
    assert_int_equal(b.wait().status, IBV_WC_SUCCESS);
    assert_int_equal(a.wait().status, IBV_WC_SUCCESS);
    if (i % 3 != 0) a.qp->disconnect(i % 3 == 1);
    if (i % 3 != 0) assert_true(b.disconnects());
  };
  for (unsigned i = 0; i < 60; ++i) once(i);  // pools have filled
  std::size_t files = 0;
  // The last sockets are closed behind the scenes.
  const auto settled = [&files] {
    const std::size_t now = open_files();
    return std::exchange(files, now) == now;
  };
  assert_true(eventually([&] {
    poll(nullptr, 0, 20);
    return settled();
  }));
  const std::size_t threads_before = threads(), memory_before = mallinfo2().uordblks;
  for (unsigned i = 0; i < 500; ++i) once(i);
  const std::size_t files_before = files;
  if (!eventually([&] { return open_files() <= files_before; }))
    fail_msg("%zu descriptors, %zu before", open_files(), files_before);
  assert_int_equal(threads(), threads_before);
  if (!kInstrumented) {
    const bool back = eventually([&] { return mallinfo2().uordblks < memory_before + 200'000; });
    if (!back) fail_msg("%zu octets allocated, %zu before", mallinfo2().uordblks, memory_before);
  }
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("500", "60000");
  const CMUnitTest tests[] = {
      cmocka_unit_test(vrb_32_posters_and_pollers),
      cmocka_unit_test(vrb_32_ends_under_fire),
      cmocka_unit_test(many_queue_pairs_on_one_queue),
      cmocka_unit_test(connections_leave_nothing_behind),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
