// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two queue pairs of this process joined by a socket pair, each with its own completion queue and memory.
#pragma once

#include <dirent.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "llp/local_stream.h"
#include "llp/tcp_stream.h"
#include "provider/verbs/completion_queue.h"
#include "provider/verbs/device/context.h"
#include "provider/verbs/device/device.h"
#include "provider/verbs/memory/memory.h"
#include "provider/verbs/queue_pair.h"

namespace ewarp::test {

using namespace ewarp::verbs;

inline Device& any_device() {
  static Device* device = [] {
    Device* d = find_device("ewarp_lo");
    if (d == nullptr) throw std::runtime_error("no loopback device");
    return d;
  }();
  return *device;
}

inline std::shared_ptr<EventChannel> channel(std::size_t record) {
  int error = 0;
  auto c = EventChannel::create(record, &error);
  if (c == nullptr) throw std::runtime_error("no event channel");
  return c;
}

struct Observer : StreamObserver {
  std::atomic<int> established{0}, disconnected{0};
  void on_established() override { ++established; }
  void on_disconnected() override { ++disconnected; }
  bool lets_sends_wait() const override { return patient; }
  std::atomic<bool> patient{false};
};

// Milliseconds for what must come: a machine may take all CPUs away for seconds. A wait for nothing says its own time.
inline constexpr int kPatience = 60'000;

inline constexpr auto kNothing = IBV_WC_TM_RNDV_INCOMPLETE;  // never used by this provider

// The next completion, or status kNothing when the time is over.
inline ibv_wc next_completion(CompletionQueue& cq, int milliseconds) {
  ibv_wc wc{};
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (cq.poll(1, &wc) == 0)
    if (std::chrono::steady_clock::now() > until) {
      wc.status = kNothing;
      break;
    }
  return wc;
}

// The next asynchronous event: {type, handle of its object}; {-1, 0}: none within this time.
inline std::pair<int, std::uint64_t> next_event(EventChannel& async, int milliseconds) {
  ib_uverbs_async_event_desc e{};
  pollfd p{async.read_fd(), POLLIN, 0};
  if (poll(&p, 1, milliseconds) != 1 || read(p.fd, &e, sizeof e) != sizeof e) return {-1, 0};
  return {static_cast<int>(e.event_type), e.element};
}

inline std::size_t entries_of(const char* directory) {
  std::size_t n = 0;
  DIR* d = opendir(directory);
  while (readdir(d) != nullptr) ++n;
  closedir(d);
  return n;
}
// For comparing only: the directory itself and its dots count too.
inline std::size_t open_files() {
  return entries_of("/proc/self/fd");
}

// One side: a QP, its CQ, one registered buffer.
struct Side {
  explicit Side(std::size_t buffer = 1 << 20,
                unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
                Device& device = any_device())
      : async(channel(16)),
        completions(channel(8)),
        context(device, async),
        pd(context),
        cq(context, 4096, completions, kCqHandle),
        memory_octets(buffer) {
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.cap = {256, 256, 8, 8, 256};
    if (create_rc_qp(pd, init, &cq, &cq, &qp) != 0) throw std::runtime_error("create_qp");
    if (memory().add(pd, memory_octets.data(), memory_octets.size(),
                     reinterpret_cast<std::uintptr_t>(memory_octets.data()), access, &mr) != 0)
      throw std::runtime_error("reg_mr");
    qp->set_handle(kHandle);
  }
  ~Side() {
    qp->destroy();
    if (mr != nullptr) memory().remove(mr);
  }

  std::byte* at(std::size_t offset) { return memory_octets.data() + offset; }
  std::uint64_t address(std::size_t offset) { return reinterpret_cast<std::uintptr_t>(at(offset)); }
  ibv_sge sge(std::size_t offset, std::uint32_t length) { return {address(offset), length, mr->stag()}; }

  int send(ibv_wr_opcode op, std::vector<ibv_sge> sges, std::uint64_t remote = 0, std::uint32_t rkey = 0,
           unsigned flags = IBV_SEND_SIGNALED, std::uint64_t id = 1, std::uint32_t immediate = 0) {
    ibv_send_wr wr{};
    ibv_send_wr* bad = nullptr;
    wr.wr_id = id;
    wr.opcode = op;
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    wr.send_flags = flags;
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    if (op == IBV_WR_SEND_WITH_INV) wr.invalidate_rkey = rkey;
    if (op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM) wr.imm_data = htobe32(immediate);
    return qp->post_send(&wr, &bad);
  }
  // sge: where the original value goes.
  int atomic(ibv_wr_opcode op, ibv_sge sge, std::uint64_t remote, std::uint32_t rkey, std::uint64_t compare_add,
             std::uint64_t swap = 0, unsigned flags = IBV_SEND_SIGNALED, std::uint64_t id = 1) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.opcode = op;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = flags;
    wr.wr.atomic = {remote, compare_add, swap, rkey};
    return qp->post_send(&wr, &bad);
  }
  int receive(std::vector<ibv_sge> sges, std::uint64_t id = 100) {
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    return qp->post_recv(&wr, &bad);
  }
  // The next completion, or status kNothing.
  ibv_wc wait(int milliseconds = kPatience) { return next_completion(cq, milliseconds); }
  ibv_qp_state state() {
    ibv_qp_attr a{};
    ibv_qp_init_attr i{};
    qp->query(a, i);
    return a.qp_state;
  }
  bool reaches(ibv_qp_state s, int milliseconds = kPatience) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    while (state() != s) {
      if (std::chrono::steady_clock::now() > until) return false;
      poll(nullptr, 0, 1);
    }
    return true;
  }

  // The next asynchronous event of the QP; -1: none within this time.
  int event(int milliseconds = kPatience) {
    const auto [type, handle] = next_event(*async, milliseconds);
    return type == -1 || handle == kHandle ? type : -2;
  }
  // The next event of the completion channel is that of our CQ.
  bool cq_event(int milliseconds = kPatience) {
    std::uint64_t handle = 0;
    pollfd p{completions->read_fd(), POLLIN, 0};
    return poll(&p, 1, milliseconds) == 1 && read(p.fd, &handle, sizeof handle) == sizeof handle && handle == kCqHandle;
  }
  // The observer hears of the stream's end, and once only.
  bool disconnects(int milliseconds = kPatience) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    while (observer->disconnected == 0 && std::chrono::steady_clock::now() < until) poll(nullptr, 0, 1);
    return observer->disconnected == 1;
  }

  static constexpr std::uint64_t kHandle = 0x1234, kCqHandle = 0x99;
  std::shared_ptr<EventChannel> async, completions;
  Context context;
  Pd pd;
  CompletionQueue cq;
  std::vector<std::byte> memory_octets;
  MemoryRegion* mr = nullptr;
  std::shared_ptr<QueuePair> qp;
  std::shared_ptr<Observer> observer = std::make_shared<Observer>();
};

inline mpa::StreamParams params(bool initiator, bool crc = false, bool extensions = true) {
  mpa::StreamParams p;
  p.initiator = initiator;
  p.crc = crc;
  p.extensions = extensions;
  p.ird = p.ord = 16;
  return p;
}

// The tests run twice: over sockets, and with EWARP_TEST_STREAM=local in the environment over shared memory.
inline bool over_local_streams() {
  const char* stream = getenv("EWARP_TEST_STREAM");
  return stream != nullptr && std::string_view(stream) == "local";
}

struct StreamPair {
  StreamPair() {
    const int type = over_local_streams() ? SOCK_SEQPACKET : SOCK_STREAM;
    int fds[2], shared = -1;
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) throw std::runtime_error("pair");
    if (!over_local_streams()) {
      one = llp::tcp_stream(fds[0]);
      other = llp::tcp_stream(fds[1]);
      return;
    }
    llp::LocalMemory mine, theirs;
    if (llp::LocalMemory::create(&mine, &shared) != 0 || llp::LocalMemory::adopt(shared, &theirs) != 0)
      throw std::runtime_error("memory");
    close(shared);
    one = llp::local_stream(fds[0], std::move(mine), true, "one");
    other = llp::local_stream(fds[1], std::move(theirs), false, "other");
  }
  std::unique_ptr<llp::Stream> one, other;
};

inline void join(Side& a, Side& b, mpa::StreamParams pa, mpa::StreamParams pb) {
  StreamPair streams;
  if (b.qp->attach(std::move(streams.other), pb, b.observer) != 0) throw std::runtime_error("attach");
  if (a.qp->attach(std::move(streams.one), pa, a.observer) != 0) throw std::runtime_error("attach");
}

}  // namespace ewarp::test
