// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A standard session, three times in one process, over the loopback device: devices, PD, completion channel, CQs,
// memory, two queue pairs, a connection, Sends, Write, Read, atomic, disconnect, all of it taken down. inject.py fails
// a system call or an allocation of EtherWARP's during one of them.
//
//   ewarp_inject_session rc|ud|rd|cm [EXPECTED DESCRIPTORS]
//
// A call or a completion that fails is an answer: the session takes down what it made and says 'stopped'. These are
// findings, and the exit status is 3: a success with wrong octets, a failure without errno, a completion that never
// comes or comes twice, an event that never comes, a destroy that fails twice.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/etherwarpdv.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "possessions.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Above all time-outs that inject.py sets. EWARP_TEST_PATIENCE as in harness.py.
const auto kPatience = [] {
  const char* times = std::getenv("EWARP_TEST_PATIENCE");
  return std::chrono::seconds(static_cast<long>(20 * (times != nullptr ? std::max(std::atof(times), 1.0) : 1.0)));
}();
constexpr int kResolveMs = 10000;
constexpr std::uint32_t kQkey = 0x11111111;
constexpr std::size_t kOctets = 1 << 20;
constexpr int kGrh = 40;

// What a program may meet.
struct Stop {
  std::string step;
  std::string why;
};

// What it must not.
[[noreturn]] void finding(const std::string& text) {
  std::printf("FINDING: %s\n", text.c_str());
  std::fflush(stdout);
  std::_Exit(3);
}

void good(int rc, const char* step) {
  if (rc == 0) return;
  const int error = rc > 0 ? rc : errno;
  if (error <= 0 || error >= 4096) finding(std::string(step) + " failed without an errno");
  throw Stop{step, strerrorname_np(error)};
}

template <typename T>
T* made(T* object, const char* step) {
  if (object == nullptr) good(-1, step);
  return object;
}

std::byte octet(std::size_t i, unsigned seed) {
  return static_cast<std::byte>((i * 2654435761U >> 13) + seed);
}

void fill(std::span<std::byte> memory, unsigned seed) {
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = octet(i, seed);
}

bool holds(std::span<const std::byte> memory, unsigned seed) {
  for (std::size_t i = 0; i < memory.size(); ++i)
    if (memory[i] != octet(i, seed)) return false;
  return true;
}

// Takes down what was made, the last first.
class Undo {
 public:
  void add(const char* name, std::function<int()> call) { calls_.emplace_back(name, std::move(call)); }
  void run() {
    while (!calls_.empty()) {
      auto [name, call] = std::move(calls_.back());
      calls_.pop_back();
      errno = 0;
      if (call() == 0) continue;
      const int first = errno;
      errno = 0;
      if (const int rc = call(); rc != 0)
        finding(std::string(name) + " fails twice: " + strerror(first) + ", " + strerror(rc > 0 ? rc : errno));
    }
  }

 private:
  std::vector<std::pair<const char*, std::function<int()>>> calls_;
};

struct End {
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  ibv_ah* to_peer = nullptr;  // datagrams
  std::vector<std::byte> memory = std::vector<std::byte>(kOctets + kGrh);
  std::map<std::uint64_t, std::function<bool()>> open;  // requests, and what is true once they have succeeded

  ibv_sge sge(std::size_t octets, std::size_t at = 0) {
    return {reinterpret_cast<std::uintptr_t>(memory.data()) + at, static_cast<std::uint32_t>(octets), mr->lkey};
  }
  std::span<std::byte> octets(std::size_t n, std::size_t at = 0) { return std::span(memory).subspan(at, n); }
};

class Session {
 public:
  explicit Session(std::string kind) : kind_(std::move(kind)) {}

  // "ok", or where it stopped and why.
  std::string run() {
    std::string result = "ok";
    try {
      kind_ == "cm" ? connect_by_cm() : connect_by_address();
      kind_ == "ud" ? datagrams() : messages();
      if (kind_ == "cm") disconnect();
    } catch (const Stop& stop) {
      result = "stopped " + stop.step + " " + stop.why;
    }
    flush();
    undo_.run();
    return result;
  }

 private:
  bool is_rd() const { return kind_ == "rd"; }

  // --- objects ---

  void open_device() {
    int n = 0;
    errno = 0;
    ibv_device** list = made(ibv_get_device_list(&n), "ibv_get_device_list");
    for (int i = 0; i < n && context_ == nullptr; ++i) {
      if (std::string_view(ibv_get_device_name(list[i])) != "ewarp_lo") continue;
      errno = 0;
      context_ = ibv_open_device(list[i]);
      if (context_ == nullptr) {
        const int error = errno;
        ibv_free_device_list(list);
        errno = error;
        good(-1, "ibv_open_device");
      }
    }
    ibv_free_device_list(list);
    if (context_ == nullptr) throw Stop{"ibv_get_device_list", "no ewarp_lo"};
    undo_.add("ibv_close_device", [this] { return ibv_close_device(context_); });
  }

  void make_common() {
    errno = 0;
    pd_ = made(ibv_alloc_pd(context_), "ibv_alloc_pd");
    undo_.add("ibv_dealloc_pd", [this] { return ibv_dealloc_pd(pd_); });
    channel_ = made(ibv_create_comp_channel(context_), "ibv_create_comp_channel");
    undo_.add("ibv_destroy_comp_channel", [this] { return ibv_destroy_comp_channel(channel_); });
    for (End& end : ends_) {
      errno = 0;
      end.mr = made(ibv_reg_mr(pd_, end.memory.data(), end.memory.size(),
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                   IBV_ACCESS_REMOTE_ATOMIC),
                    "ibv_reg_mr");
      undo_.add("ibv_dereg_mr", [&end] { return ibv_dereg_mr(end.mr); });
      end.cq = made(ibv_create_cq(context_, 64, nullptr, channel_, 0), "ibv_create_cq");
      undo_.add("ibv_destroy_cq", [&end] { return ibv_destroy_cq(end.cq); });
    }
  }

  ibv_qp_init_attr wanted(End& end, ibv_qp_type type) const {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = end.cq;
    init.qp_type = type;
    init.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64};
    return init;
  }

  ibv_qp* create_qp(End& end) {
    ibv_qp_init_attr init = wanted(end, kind_ == "ud" ? IBV_QPT_UD : IBV_QPT_RC);
    if (!is_rd()) return ibv_create_qp(pd_, &init);
    ibv_qp_init_attr_ex more{};
    more.send_cq = more.recv_cq = end.cq;
    more.cap = init.cap;
    more.qp_type = IBV_QPT_DRIVER;
    more.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    more.pd = pd_;
    more.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                          IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    etherwarpdv_qp_init_attr rd{};
    rd.qp_type = ETHERWARPDV_QP_TYPE_RD;
    return etherwarpdv_create_qp_ex(context_, &more, &rd, sizeof rd);
  }

  void modify(End& end, ibv_qp_state state, ibv_qp_attr attr, int mask) {
    attr.qp_state = state;
    errno = 0;
    good(ibv_modify_qp(end.qp, &attr, mask | IBV_QP_STATE), "ibv_modify_qp");
  }

  void connect_by_address() {
    open_device();
    make_common();
    union ibv_gid gid {};
    errno = 0;
    good(ibv_query_gid(context_, 1, 0, &gid), "ibv_query_gid");
    for (End& end : ends_) {
      errno = 0;
      end.qp = made(create_qp(end), "ibv_create_qp");
      undo_.add("ibv_destroy_qp", [&end] { return ibv_destroy_qp(end.qp); });
    }
    ibv_ah_attr path{};
    path.is_global = 1;
    path.grh.dgid = gid;
    path.grh.hop_limit = 64;
    path.port_num = 1;
    for (End& end : ends_) {
      ibv_qp_attr attr{};
      attr.port_num = 1;
      attr.qkey = kQkey;
      attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
      const bool rc = kind_ == "rc";
      modify(end, IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | (rc ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY));
      if (rc) continue;
      errno = 0;
      end.to_peer = made(ibv_create_ah(pd_, &path), "ibv_create_ah");
      undo_.add("ibv_destroy_ah", [&end] { return ibv_destroy_ah(end.to_peer); });
      modify(end, IBV_QPS_RTR, attr, 0);
      modify(end, IBV_QPS_RTS, attr, IBV_QP_SQ_PSN);
    }
    if (kind_ != "rc") return;
    for (End& end : ends_) {
      ibv_qp_attr attr{};
      attr.path_mtu = IBV_MTU_1024;
      attr.dest_qp_num = peer_of(end).qp->qp_num;
      attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
      attr.min_rnr_timer = 12;
      attr.ah_attr = path;
      modify(end, IBV_QPS_RTR, attr,
             IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                 IBV_QP_MIN_RNR_TIMER);
      attr.timeout = 14;
      attr.retry_cnt = attr.rnr_retry = 7;
      modify(end, IBV_QPS_RTS, attr,
             IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    }
  }

  // --- rdma_cm ---

  struct Side {
    rdma_event_channel* channel = nullptr;
    rdma_cm_id* id = nullptr;
  };

  // Takes events until each of these has come; another one is the end.
  void await(std::set<std::pair<int, rdma_cm_event_type>> wanted, const char* step) {
    const auto until = Clock::now() + kPatience;
    while (!wanted.empty()) {
      pollfd fds[2] = {{sides_[0].channel->fd, POLLIN, 0}, {sides_[1].channel->fd, POLLIN, 0}};
      if (Clock::now() > until) finding(std::string(step) + ": an event never came");
      ::poll(fds, 2, 100);
      for (int side = 0; side < 2; ++side) {
        if ((fds[side].revents & POLLIN) == 0) continue;
        rdma_cm_event* event = nullptr;
        errno = 0;
        good(rdma_get_cm_event(sides_[side].channel, &event), "rdma_get_cm_event");
        const rdma_cm_event_type type = event->event;
        const int status = event->status;
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
          rdma_cm_id* id = sides_[1].id = event->id;
          undo_.add("rdma_destroy_id", [id] { return rdma_destroy_id(id); });
        }
        rdma_ack_cm_event(event);
        if (wanted.erase({side, type}) == 0) throw Stop{step, rdma_event_str(type) + (" " + std::to_string(status))};
      }
    }
  }

  void make_cm_qp(int side) {
    ibv_qp_init_attr init = wanted(ends_[side], IBV_QPT_RC);
    rdma_cm_id* id = sides_[side].id;
    errno = 0;
    good(rdma_create_qp(id, pd_, &init), "rdma_create_qp");
    ends_[side].qp = id->qp;
    undo_.add("rdma_destroy_qp", [id] {
      rdma_destroy_qp(id);
      return 0;
    });
  }

  void connect_by_cm() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* where = reinterpret_cast<sockaddr*>(&address);
    for (Side& side : sides_) {
      errno = 0;
      side.channel = made(rdma_create_event_channel(), "rdma_create_event_channel");
      undo_.add("rdma_destroy_event_channel", [&side] {
        rdma_destroy_event_channel(side.channel);
        return 0;
      });
    }
    rdma_cm_id* listener = nullptr;
    errno = 0;
    good(rdma_create_id(sides_[1].channel, &listener, nullptr, RDMA_PS_TCP), "rdma_create_id");
    undo_.add("rdma_destroy_id", [listener] { return rdma_destroy_id(listener); });
    good(rdma_bind_addr(listener, where), "rdma_bind_addr");
    good(rdma_listen(listener, 4), "rdma_listen");
    address.sin_port = rdma_get_src_port(listener);
    rdma_cm_id* id = nullptr;
    good(rdma_create_id(sides_[0].channel, &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
    sides_[0].id = id;
    undo_.add("rdma_destroy_id", [id] { return rdma_destroy_id(id); });
    good(rdma_resolve_addr(id, nullptr, where, kResolveMs), "rdma_resolve_addr");
    await({{0, RDMA_CM_EVENT_ADDR_RESOLVED}}, "rdma_resolve_addr");
    good(rdma_resolve_route(id, kResolveMs), "rdma_resolve_route");
    await({{0, RDMA_CM_EVENT_ROUTE_RESOLVED}}, "rdma_resolve_route");
    context_ = id->verbs;
    make_common();
    make_cm_qp(0);
    rdma_conn_param param{};
    param.responder_resources = param.initiator_depth = 4;
    param.retry_count = param.rnr_retry_count = 7;
    good(rdma_connect(id, &param), "rdma_connect");
    await({{1, RDMA_CM_EVENT_CONNECT_REQUEST}}, "rdma_connect");
    make_cm_qp(1);
    errno = 0;
    good(rdma_accept(sides_[1].id, &param), "rdma_accept");
    await({{0, RDMA_CM_EVENT_ESTABLISHED}, {1, RDMA_CM_EVENT_ESTABLISHED}}, "rdma_accept");
  }

  void disconnect() {
    errno = 0;
    good(rdma_disconnect(sides_[0].id), "rdma_disconnect");
    await({{0, RDMA_CM_EVENT_DISCONNECTED}, {1, RDMA_CM_EVENT_DISCONNECTED}}, "rdma_disconnect");
  }

  // --- requests ---

  End& peer_of(const End& end) { return &end == &ends_[0] ? ends_[1] : ends_[0]; }

  void receive(End& end, std::size_t octets, std::function<bool()> after) {
    ibv_sge sge = end.sge(octets);
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = ++last_id_;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    errno = 0;
    good(ibv_post_recv(end.qp, &wr, &bad), "ibv_post_recv");
    end.open.emplace(wr.wr_id, std::move(after));
  }

  void post(End& end, ibv_wr_opcode opcode, ibv_sge sge, std::function<bool()> after, unsigned flags = 0) {
    End& peer = peer_of(end);
    const std::uintptr_t remote = reinterpret_cast<std::uintptr_t>(peer.memory.data());
    const std::uint64_t id = ++last_id_;
    errno = 0;
    if (is_rd()) {
      ibv_qp_ex* q = ibv_qp_to_qp_ex(end.qp);
      ibv_wr_start(q);
      q->wr_id = id;
      q->wr_flags = IBV_SEND_SIGNALED;
      if (opcode == IBV_WR_SEND) ibv_wr_send(q);
      if (opcode == IBV_WR_RDMA_WRITE) ibv_wr_rdma_write(q, peer.mr->rkey, remote);
      if (opcode == IBV_WR_RDMA_READ) ibv_wr_rdma_read(q, peer.mr->rkey, remote);
      if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) ibv_wr_atomic_fetch_add(q, peer.mr->rkey, remote, 7);
      ibv_wr_set_ud_addr(q, end.to_peer, peer.qp->qp_num, kQkey);
      ibv_wr_set_sge(q, sge.lkey, sge.addr, sge.length);
      good(ibv_wr_complete(q), "ibv_wr_complete");
    } else {
      ibv_send_wr wr{}, *bad = nullptr;
      wr.wr_id = id;
      wr.opcode = opcode;
      wr.send_flags = IBV_SEND_SIGNALED | flags;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      if (kind_ == "ud") {
        wr.wr.ud = {end.to_peer, peer.qp->qp_num, kQkey};
      } else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic = {remote, 7, 0, peer.mr->rkey};
      } else {
        wr.wr.rdma = {remote, peer.mr->rkey};
      }
      good(ibv_post_send(end.qp, &wr, &bad), "ibv_post_send");
    }
    end.open.emplace(id, std::move(after));
  }

  bool is_open() const { return !ends_[0].open.empty() || !ends_[1].open.empty(); }

  // False if there was none.
  bool take_completions(bool flushing) {
    bool any = false;
    for (End& end : ends_) {
      if (end.cq == nullptr) continue;
      ibv_wc wc{};
      int n = 0;
      while ((n = ibv_poll_cq(end.cq, 1, &wc)) > 0) {
        any = true;
        const auto request = end.open.find(wc.wr_id);
        if (request == end.open.end()) finding("a completion of no request, or a second one");
        const auto after = std::move(request->second);
        end.open.erase(request);
        if (wc.status == IBV_WC_SUCCESS && !after()) finding("success, and the octets are wrong");
        if (wc.status != IBV_WC_SUCCESS && !flushing) throw Stop{"completion", ibv_wc_status_str(wc.status)};
      }
      if (n < 0) finding("ibv_poll_cq failed");
    }
    return any;
  }

  // By event: what has completed must have told so. UD comes back to look whether a datagram was lost.
  void sleep_for_completion() {
    for (End& end : ends_) {
      errno = 0;
      good(ibv_req_notify_cq(end.cq, 0), "ibv_req_notify_cq");
    }
    if (take_completions(false)) return;
    constexpr std::chrono::milliseconds kLost = 100ms;
    const std::chrono::milliseconds all = kPatience;
    pollfd fd{channel_->fd, POLLIN, 0};
    if (::poll(&fd, 1, static_cast<int>((kind_ == "ud" ? kLost : all).count())) != 1) {
      if (kind_ != "ud" && take_completions(true)) finding("a completion came without its event");
      return;
    }
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    errno = 0;
    good(ibv_get_cq_event(channel_, &cq, &context), "ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
  }

  void finish(const char* step) {
    for (const auto until = Clock::now() + kPatience; is_open();) {
      if (Clock::now() > until) finding(std::string(step) + ": a completion never came");
      if (!take_completions(false) && is_open()) sleep_for_completion();
    }
  }

  void messages() {
    End &a = ends_[0], &b = ends_[1];
    const auto nothing = [] { return true; };
    constexpr std::size_t kSmall = 64, kMiddle = 20000, kRead = 256 << 10;
    fill(a.octets(kSmall), 1);
    receive(b, kSmall, [&] { return holds(b.octets(kSmall), 1); });
    post(a, IBV_WR_SEND, a.sge(kSmall), nothing, IBV_SEND_INLINE);
    finish("Send");
    fill(b.octets(kMiddle), 2);
    receive(a, kMiddle, [&] { return holds(a.octets(kMiddle), 2); });
    post(b, IBV_WR_SEND, b.sge(kMiddle), nothing);
    finish("Send of 20000 octets");
    // A Write is placed when the Send behind it has arrived: its receive of no octets leaves them alone.
    fill(a.octets(kOctets), 3);
    receive(b, 0, [&] { return holds(b.octets(kOctets), 3); });
    post(a, IBV_WR_RDMA_WRITE, a.sge(kOctets), nothing);
    post(a, IBV_WR_SEND, a.sge(0), nothing);
    finish("Write");
    fill(a.octets(kRead), 4);
    post(b, IBV_WR_RDMA_READ, b.sge(kRead), [&] { return holds(b.octets(kRead), 4); });
    finish("Read");
    const auto word = [](End& end, std::size_t at) {
      std::uint64_t value = 0;
      std::memcpy(&value, end.memory.data() + at, sizeof value);
      return value;
    };
    const std::uint64_t before = word(b, 0);
    post(a, IBV_WR_ATOMIC_FETCH_AND_ADD, a.sge(8, 512),
         [&] { return word(a, 512) == before && word(b, 0) == before + 7; });
    finish("atomic");
  }

  // A datagram may be lost: again, until it arrives.
  void datagrams() {
    for (std::size_t octets : {8U, 1000U}) {
      for (int from = 0; from < 2; ++from) {
        End &a = ends_[from], &b = ends_[1 - from];
        fill(a.octets(octets), static_cast<unsigned>(octets));
        bool arrived = false;
        receive(b, octets + kGrh, [&] {
          arrived = true;
          return holds(b.octets(octets, kGrh), static_cast<unsigned>(octets));
        });
        for (const auto until = Clock::now() + kPatience; !arrived || is_open();) {
          if (Clock::now() > until) finding("no datagram arrives, or a completion never came");
          if (a.open.empty() && !arrived) post(a, IBV_WR_SEND, a.sge(octets), [] { return true; });
          if (!take_completions(false) && is_open()) sleep_for_completion();
        }
      }
    }
  }

  // All requests come back once their queue pair is in ERR.
  void flush() {
    for (End& end : ends_) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_ERR;
      if (end.qp == nullptr || end.open.empty()) continue;
      if (ibv_modify_qp(end.qp, &attr, IBV_QP_STATE) != 0 && ibv_modify_qp(end.qp, &attr, IBV_QP_STATE) != 0)
        finding("ibv_modify_qp to ERR fails twice");
    }
    for (const auto until = Clock::now() + kPatience; is_open();) {
      if (Clock::now() > until) finding("a request is not flushed");
      if (!take_completions(true)) std::this_thread::sleep_for(1ms);
    }
  }

  std::string kind_;
  Undo undo_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  End ends_[2];
  Side sides_[2];
  std::uint64_t last_id_ = 0;
};

// Where libibverbs finds no device by netlink it looks into sysfs, and the process then keeps a lock on the tree that
// it was given (docs/design/provider.md): one descriptor, which a session to which nothing happens does not have.
std::ptrdiff_t locks_of_the_tree() {
  std::ptrdiff_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    n += std::filesystem::read_symlink(entry, gone).filename().string().starts_with("etherwarp-sysfs-");
  }
  if (n > 1) finding("locks on more than one sysfs tree");
  return n;
}

Possessions possessions_but_the_tree() {
  Possessions all = possessions();
  all.fds -= locks_of_the_tree();
  return all;
}

// Descriptors, once they are as many as expected or nothing has changed for a second: connections close late.
Possessions settled(long expected) {
  Possessions now = possessions_but_the_tree();
  auto since = Clock::now();
  for (const auto until = since + 10s; Clock::now() < until; std::this_thread::sleep_for(2ms)) {
    const Possessions next = possessions_but_the_tree();
    if (next.fds <= expected) return next;
    if (next != now) since = Clock::now();
    now = next;
    if (Clock::now() - since > (expected > 0 ? 4s : 1s)) break;
  }
  return now;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const long expected = argc > 2 ? std::atol(argv[2]) : 0;
  auto* live = reinterpret_cast<long (*)()>(dlsym(RTLD_DEFAULT, "ewarp_inject_live"));
  for (const char* which : {"first", "second", "third"}) {
    const std::string result = Session(argv[1]).run();
    std::printf("%s %s\n", which, result.c_str());
    std::fflush(stdout);
  }
  const Possessions left = settled(expected);
  std::printf("fds %td threads %td live %ld\n", left.fds, left.threads, live != nullptr ? live() : -1);
  return 0;
}
