// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A process that computes and never calls verbs, on a CPU that its own background thread has to share, and a peer that
// visits it: how long the peer's Reads, Writes and atomics wait, and how often a thread is woken by Sends that nobody
// waits for, and by Writes that come while the process polls. Plain librdmacm and libibverbs on the loopback interface;
// progress.py judges what they print.
//
//     ewarp_computing host|visitor PORT
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 60;   // of each operation
constexpr int kFlood = 2000;  // Sends that nobody waits for
constexpr auto kBetween = 200us;
// Writes to a host that polls in each second slot of the clock, and computes in the others.
constexpr int kMeetings = 1000;
constexpr auto kSlot = 400us;
constexpr int kReceives = 4096;

void must(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

template <class T>
T* needed(T* p, const char* what) {
  must(p != nullptr, what);
  return p;
}

// To the first CPU that is allowed, or the last one: with all threads that this one starts.
void keep_to_cpu(bool first) {
  cpu_set_t allowed, one;
  must(sched_getaffinity(0, sizeof allowed, &allowed) == 0, "sched_getaffinity");
  int chosen = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && (!first || chosen < 0)) chosen = cpu;
  CPU_ZERO(&one);
  CPU_SET(chosen, &one);
  must(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
}

// What the visitor touches. It raises `phase`, which tells the host what to do next.
struct Shared {
  std::atomic<std::uint64_t> phase{0}, counter{0}, written{0}, met{0};
};
enum : std::uint64_t { kVisits, kFloods, kMeets, kEnds };

// The clock is the same in both processes.
bool in_slot_of_polls() {
  return Clock::now().time_since_epoch() / kSlot % 2 == 1;
}

struct Offer {
  std::uint64_t address;
  std::uint32_t rkey;
};

rdma_cm_id* endpoint(const char* port, int flags) {
  rdma_addrinfo hints{}, *found = nullptr;
  hints.ai_flags = flags;
  hints.ai_port_space = RDMA_PS_TCP;
  must(rdma_getaddrinfo("127.0.0.1", port, &hints, &found) == 0, "rdma_getaddrinfo");
  ibv_qp_init_attr attributes{};
  attributes.cap = {
      .max_send_wr = 16, .max_recv_wr = kReceives, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  rdma_cm_id* id = nullptr;
  must(rdma_create_ep(&id, found, nullptr, &attributes) == 0, "rdma_create_ep");
  rdma_freeaddrinfo(found);
  return id;
}

// --- host ---

// Of the thread that drives the engine.
long switches_of_the_thread() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, line;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != "etherwarp") continue;
    for (std::ifstream status(task.path() / "status"); std::getline(status, line);)
      if (line.starts_with("voluntary_ctxt_switches:")) return std::stol(line.substr(line.find(':') + 1));
  }
  throw std::runtime_error("no thread named etherwarp");
}

// Percent of the time in which this process had its CPU: others may want it, too.
int compute_until(const Shared& shared, std::uint64_t phase) {
  const auto began = Clock::now(), until = began + 60s;
  const std::clock_t before = std::clock();
  while (shared.phase.load(std::memory_order_relaxed) < phase)
    must(Clock::now() < until, "nobody tells it to go on");  // the clock is read without a system call
  const double had = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  return static_cast<int>(100 * had / std::chrono::duration<double>(Clock::now() - began).count());
}

void poll_in_turns(rdma_cm_id* id, const Shared& shared, std::uint64_t phase) {
  ibv_wc wc{};
  for (const auto until = Clock::now() + 60s; shared.phase.load(std::memory_order_relaxed) < phase;) {
    must(Clock::now() < until, "nobody tells it to go on");
    if (in_slot_of_polls()) must(ibv_poll_cq(id->recv_cq, 1, &wc) >= 0, "ibv_poll_cq");
  }
}

void host(const char* port) {
  keep_to_cpu(true);
  rdma_cm_id *const listening = endpoint(port, RAI_PASSIVE), *id = nullptr;
  must(rdma_listen(listening, 1) == 0, "rdma_listen");
  must(rdma_get_request(listening, &id) == 0, "rdma_get_request");
  Shared shared;
  std::array<char, 64> message{};
  ibv_mr* const region = needed(
      ibv_reg_mr(id->pd, &shared, sizeof shared,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC),
      "ibv_reg_mr");
  ibv_mr* const messages = needed(rdma_reg_msgs(id, message.data(), message.size()), "rdma_reg_msgs");
  for (int i = 0; i < kReceives; ++i)
    must(rdma_post_recv(id, nullptr, message.data(), message.size(), messages) == 0, "rdma_post_recv");
  const Offer offer{reinterpret_cast<std::uintptr_t>(&shared), region->rkey};
  rdma_conn_param parameters{};
  parameters.private_data = &offer;
  parameters.private_data_len = sizeof offer;
  parameters.responder_resources = parameters.initiator_depth = 4;
  must(rdma_accept(id, &parameters) == 0, "rdma_accept");
  std::printf("computed %d %% of the time\n", compute_until(shared, kFloods));
  const auto woken = [](const char* by, int count, auto meanwhile) {
    const long before = switches_of_the_thread();
    const auto began = Clock::now();
    const std::clock_t had = std::clock();
    meanwhile();
    const auto us = static_cast<long long>((Clock::now() - began) / 1us);
    std::printf("woken %ld times by %d %s in %lld us, of which it computed or polled %lld %%\n",
                switches_of_the_thread() - before, count, by, us, 100 * (std::clock() - had) / us);
  };
  woken("Sends", kFlood, [&] { compute_until(shared, kMeets); });
  woken("Writes", kMeetings, [&] { poll_in_turns(id, shared, kEnds); });
  must(shared.counter.load() == kRounds && shared.written.load() == kRounds && shared.met.load() == kMeetings,
       "what was visited is not there");
  rdma_cm_event* event = nullptr;  // the visitor's last Read is answered before it leaves
  must(rdma_get_cm_event(id->channel, &event) == 0, "rdma_get_cm_event");
  must(event->event == RDMA_CM_EVENT_DISCONNECTED, rdma_event_str(event->event));
  rdma_ack_cm_event(event);
}

// --- visitor ---

class Visitor {
 public:
  explicit Visitor(const char* port) : id_(endpoint(port, 0)) {
    rdma_conn_param parameters{};
    parameters.responder_resources = parameters.initiator_depth = 4;
    must(rdma_connect(id_, &parameters) == 0, "rdma_connect");
    must(id_->event->param.conn.private_data_len >= sizeof offer_, "the host offers nothing");
    std::memcpy(&offer_, id_->event->param.conn.private_data, sizeof offer_);
    region_ =
        needed(ibv_reg_mr(id_->pd, words_.data(), sizeof words_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
               "ibv_reg_mr");
  }

  void send() { post(IBV_WR_SEND, 0, 8), wait(1); }
  // A Write is complete before it is placed; the Read behind it is not.
  void write(std::size_t offset, std::uint64_t value) {
    words_[0] = value;
    post(IBV_WR_RDMA_WRITE, offset, 8);
    post(IBV_WR_RDMA_READ, offset, 8, 1);
    wait(2);
    must(words_[1] == value, "what was written does not come back");
  }
  void read(std::size_t offset) { post(IBV_WR_RDMA_READ, offset, 8, 1), wait(1); }
  std::uint64_t add(std::size_t offset) {
    post(IBV_WR_ATOMIC_FETCH_AND_ADD, offset, 8, 1), wait(1);
    return words_[1];
  }
  void leave() { rdma_disconnect(id_); }

 private:
  void post(ibv_wr_opcode opcode, std::size_t offset, std::uint32_t octets, std::size_t word = 0) {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(&words_[word]), octets, region_->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      wr.wr.atomic.remote_addr = offer_.address + offset;
      wr.wr.atomic.rkey = offer_.rkey;
      wr.wr.atomic.compare_add = 1;
    } else {
      wr.wr.rdma.remote_addr = offer_.address + offset;
      wr.wr.rdma.rkey = offer_.rkey;
    }
    must(ibv_post_send(id_->qp, &wr, &bad) == 0, "ibv_post_send");
  }
  void wait(int count) {
    ibv_wc wc{};
    while (count > 0) {
      const int n = ibv_poll_cq(id_->send_cq, 1, &wc);
      must(n >= 0 && (n == 0 || wc.status == IBV_WC_SUCCESS), "a request failed");
      count -= n;
    }
  }

  rdma_cm_id* id_;
  Offer offer_{};
  std::array<std::uint64_t, 2> words_{};  // sent or written, and fetched
  ibv_mr* region_ = nullptr;
};

// Each after Sends and a pause, in which the host's thread has found that nobody waits for it.
template <class F>
void visit(Visitor& visitor, const char* name, F operation) {
  std::vector<double> ms;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 3; ++i) {
      visitor.send();
      std::this_thread::sleep_for(std::chrono::microseconds(700 + 61 * round));  // at other times in each round
    }
    const auto began = Clock::now();
    operation(round);
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
  }
  std::sort(ms.begin(), ms.end());
  std::printf("%s: median %.3f ms, 90 %% %.3f ms\n", name, ms[kRounds / 2], ms[kRounds * 9 / 10]);
}

void visitor(const char* port) {
  keep_to_cpu(false);
  Visitor v(port);
  visit(v, "Read", [&](int) { v.read(offsetof(Shared, counter)); });
  visit(v, "Write", [&](int round) { v.write(offsetof(Shared, written), static_cast<std::uint64_t>(round) + 1); });
  visit(v, "atomic", [&](int round) {
    must(v.add(offsetof(Shared, counter)) == static_cast<std::uint64_t>(round), "an atomic was lost");
  });
  v.write(offsetof(Shared, phase), kFloods);
  for (int i = 0; i < kFlood; ++i) {
    const auto next = Clock::now() + kBetween;
    v.send();
    while (Clock::now() < next) {
    }
  }
  v.write(offsetof(Shared, phase), kMeets);
  int met = 0;  // Writes that were there before the host's polls ended
  for (int i = 0; i < kMeetings; ++i) {
    while (in_slot_of_polls()) {
    }
    while (!in_slot_of_polls()) {
    }
    for (const auto middle = Clock::now() + kSlot / 4; Clock::now() < middle;) {
    }
    const auto slot = Clock::now().time_since_epoch() / kSlot;
    v.write(offsetof(Shared, met), static_cast<std::uint64_t>(i) + 1);
    met += in_slot_of_polls() && Clock::now().time_since_epoch() / kSlot == slot;
  }
  std::printf("met %d times\n", met);
  v.write(offsetof(Shared, phase), kEnds);
  v.leave();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    must(argc == 3, "usage: ewarp_computing host|visitor PORT");
    std::string(argv[1]) == "host" ? host(argv[2]) : visitor(argv[2]);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ewarp_computing: %s\n", e.what());
    return 1;
  }
}
