// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One process of the soak (scripts/soak): it listens, it connects, or both, and moves octets of which each is verified.
// Public verbs and librdmacm only.
//
//   ewarp_soak_peer --seed N [--listen PORT] [--to ADDRESS:PORT:CONNECTIONS[:steady]]...
//
// The side that connected draws one action after the other: an echo by Sends, a Write, a Write with immediate, a Read,
// an atomic, a Write by a memory window that a Send then invalidates, an error that ends the connection, a disconnect,
// a destroy without one. What ended is connected again. steady: the peer is neither killed nor stopped, so an end that
// this side did not cause is a finding, once it was connected.
//
// SIGUSR1: end all connections, take no more and say 'paused'; again: go on. SIGUSR2: give memory back that is not in
// use, and say 'rests'. SIGTERM: say what was done, and end. Exit status: 3, wrong octets or a wrong answer; 4, no
// progress; 1, a call failed that must not.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <malloc.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kArea = 64 << 10;     // what the peer may write and read
constexpr std::size_t kMessage = 16 << 10;  // a Send, at most
constexpr std::size_t kReceives = 4;
constexpr std::size_t kCounter = kArea;  // a word for atomics, and one for their results
constexpr std::size_t kOut = kArea + 16;
constexpr std::size_t kIn = kOut + kMessage;
constexpr std::size_t kMemory = kIn + kReceives * kMessage;
constexpr auto kSteadyPatience = 60s, kPatience = 90s;
constexpr auto kAgain = 200ms;

volatile sig_atomic_t toggled = 0, measured = 0, ended = 0;

[[noreturn]] void give_up(int status, const std::string& text) {
  std::printf("FINDING: %s\n", text.c_str());
  std::fflush(stdout);
  std::_Exit(status);
}

void good(int rc, const char* what) {
  if (rc != 0) give_up(1, std::string(what) + ": " + std::strerror(rc > 0 ? rc : errno));
}

template <typename T>
T* made(T* p, const char* what) {
  if (p == nullptr) give_up(1, std::string(what) + ": " + std::strerror(errno));
  return p;
}

// Octets that follow from a seed: eight at a time, and what is left of the last eight.
class Pattern {
 public:
  explicit Pattern(std::uint64_t seed) : x_(seed * 0x9e3779b97f4a7c15 + 1) {}
  std::uint64_t next() {
    x_ ^= x_ << 13;
    x_ ^= x_ >> 7;
    return x_ ^= x_ << 17;
  }

 private:
  std::uint64_t x_;
};

void fill(std::span<std::byte> to, std::uint64_t seed) {
  Pattern pattern(seed);
  for (std::size_t at = 0; at < to.size(); at += 8) {
    const std::uint64_t word = pattern.next();
    std::memcpy(to.data() + at, &word, std::min<std::size_t>(8, to.size() - at));
  }
}

bool holds(std::span<const std::byte> memory, std::uint64_t seed) {
  Pattern pattern(seed);
  for (std::size_t at = 0; at < memory.size(); at += 8) {
    const std::uint64_t word = pattern.next();
    if (std::memcmp(memory.data() + at, &word, std::min<std::size_t>(8, memory.size() - at)) != 0) return false;
  }
  return true;
}

enum class Kind : std::uint32_t {
  kEcho,
  kEchoed,
  kWritten,
  kDone,
  kPrepare,
  kPrepared,
  kBind,
  kBound,
  kWindowWritten,
};

// Begins each Send.
struct Header {
  Kind kind{};
  std::uint32_t octets = 0;  // behind this header (echo), or in the area
  std::uint64_t seed = 0;
  std::uint64_t address = 0;
  std::uint32_t rkey = 0, unused = 0;
};

// In the private data of both.
struct Welcome {
  std::uint64_t address;
  std::uint32_t rkey;
};

enum class Action {
  kNone,
  kEcho,
  kWrite,
  kImmediate,
  kRead,
  kAtomic,
  kWindow,
  kBadKey,
  kTooLong,
  kToErr,
  kDisconnect,
  kDrop,
};
constexpr std::array kNames = {"none",   "echo",    "write",    "immediate", "read",       "atomic",
                               "window", "bad_key", "too_long", "to_err",    "disconnect", "drop"};

struct Target {
  sockaddr_in address{};
  int connections = 0;
  bool steady = false;
};

struct Connection {
  std::uint64_t number = 0;
  rdma_cm_id* id = nullptr;
  const Target* target = nullptr;  // nullptr: they connected
  ibv_mr* mr = nullptr;
  ibv_mw* window = nullptr;
  std::vector<std::byte> memory = std::vector<std::byte>(kMemory);
  Welcome peer{};
  bool established = false, over = false, provoked = false, sending = false;
  std::optional<std::pair<Header, std::uint32_t>>
      waiting;  // sent when the one before has left; with what it invalidates
  Action action = Action::kNone;
  std::uint64_t seed = 0, counter = 0;
  std::uint32_t octets = 0;
  Clock::time_point deadline = Clock::time_point::max();

  std::span<std::byte> area(std::size_t n) { return std::span(memory).first(n); }
  std::span<std::byte> out(std::size_t n) { return std::span(memory).subspan(kOut, n); }
};

enum Request : std::uint64_t { kSendDone, kWriteDone, kReadDone, kAtomicDone, kBindDone, kReceived };  // + the receive

class Peer {
 public:
  Peer(std::uint64_t seed, std::vector<Target> targets) : random_(seed), targets_(std::move(targets)) {
    channel_ = made(rdma_create_event_channel(), "rdma_create_event_channel");
  }

  void listen(std::uint16_t port) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(port);
    good(rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP), "rdma_create_id");
    good(rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&any)), "rdma_bind_addr");
    good(rdma_listen(listener_, 128), "rdma_listen");
  }

  void run() {
    while (ended == 0) {
      if (toggled != 0) {
        toggled = 0;
        paused_ = !paused_;
        if (paused_) end_all();
        std::printf("%s\n", paused_ ? "paused" : "goes on");
        std::fflush(stdout);
      }
      if (!paused_) connect_missing();
      if (measured != 0) {
        measured = 0;
        rest();
      }
      std::array<pollfd, 2> fds = {pollfd{channel_->fd, POLLIN, 0},
                                   pollfd{completions_ != nullptr ? completions_->fd : -1, POLLIN, 0}};
      ::poll(fds.data(), fds.size(), 50);
      if ((fds[0].revents & POLLIN) != 0) take_event();
      if (cq_ != nullptr) take_completions((fds[1].revents & POLLIN) != 0);
      reap();
    }
    report();
  }

 private:
  // --- connections ---

  void connect_missing() {
    if (Clock::now() < again_) return;
    again_ = Clock::now() + kAgain;
    for (const Target& target : targets_) {
      int there = 0;
      for (const auto& [number, c] : connections_) there += c->target == &target;
      for (; there < target.connections; ++there) {
        Connection& c = add(&target);
        good(rdma_create_id(channel_, &c.id, &c, RDMA_PS_TCP), "rdma_create_id");
        auto address = target.address;
        c.deadline = Clock::now() + (target.steady ? kSteadyPatience : kPatience);
        if (rdma_resolve_addr(c.id, nullptr, reinterpret_cast<sockaddr*>(&address), 5000) != 0) lost(c, "resolve_addr");
      }
    }
  }

  Connection& add(const Target* target) {
    auto c = std::make_unique<Connection>();
    c->number = ++last_number_;
    c->target = target;
    return *(connections_[c->number] = std::move(c));
  }

  void equip(Connection& c) {
    if (pd_ == nullptr) {
      pd_ = made(ibv_alloc_pd(c.id->verbs), "ibv_alloc_pd");
      completions_ = made(ibv_create_comp_channel(c.id->verbs), "ibv_create_comp_channel");
      cq_ = made(ibv_create_cq(c.id->verbs, 8192, nullptr, completions_, 0), "ibv_create_cq");
      good(ibv_req_notify_cq(cq_, 0), "ibv_req_notify_cq");
    }
    c.mr = made(ibv_reg_mr(pd_, c.memory.data(), c.memory.size(),
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                               IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND),
                "ibv_reg_mr");
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.qp_type = IBV_QPT_RC;
    init.cap = {
        .max_send_wr = 16, .max_recv_wr = kReceives, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    good(rdma_create_qp(c.id, pd_, &init), "rdma_create_qp");
    for (std::size_t i = 0; i < kReceives; ++i) receive(c, i);
  }

  rdma_conn_param terms(const Connection& c, Welcome* welcome) const {
    *welcome = {reinterpret_cast<std::uintptr_t>(c.memory.data()), c.mr->rkey};
    rdma_conn_param param{};
    param.private_data = welcome;
    param.private_data_len = sizeof *welcome;
    param.responder_resources = param.initiator_depth = 4;
    param.retry_count = param.rnr_retry_count = 7;
    return param;
  }

  void take_event() {
    rdma_cm_event* event = nullptr;
    good(rdma_get_cm_event(channel_, &event), "rdma_get_cm_event");
    Welcome welcome{};
    const bool has = event->param.conn.private_data_len >= sizeof welcome && event->param.conn.private_data != nullptr;
    switch (event->event) {
      case RDMA_CM_EVENT_CONNECT_REQUEST: {
        if (has) std::memcpy(&welcome, event->param.conn.private_data, sizeof welcome);
        Connection& c = add(nullptr);
        c.id = event->id;
        c.id->context = &c;
        c.peer = welcome;
        equip(c);
        rdma_conn_param param = terms(c, &welcome);
        if (paused_ || rdma_accept(c.id, &param) != 0) c.over = true;
        break;
      }
      default: {
        if (event->id == listener_) break;
        Connection& c = *static_cast<Connection*>(event->id->context);
        if (event->event == RDMA_CM_EVENT_ESTABLISHED && has && c.target != nullptr)
          std::memcpy(&c.peer, event->param.conn.private_data, sizeof c.peer);
        on_event(c, event->event, event->status);
      }
    }
    rdma_ack_cm_event(event);
  }

  void on_event(Connection& c, rdma_cm_event_type type, int status) {
    if (c.over) return;
    switch (type) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (rdma_resolve_route(c.id, 5000) != 0) lost(c, "resolve_route");
        break;
      case RDMA_CM_EVENT_ROUTE_RESOLVED: {
        equip(c);
        Welcome welcome{};
        rdma_conn_param param = terms(c, &welcome);
        if (rdma_connect(c.id, &param) != 0) lost(c, "connect");
        break;
      }
      case RDMA_CM_EVENT_ESTABLISHED:
        c.established = true;
        ++connects_;
        if (c.target != nullptr) begin_action(c);
        break;
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
      default:
        lost(c, rdma_event_str(type) + (" " + std::to_string(status)));
    }
  }

  // The connection has ended. Whether that is as it should be depends on who made it end.
  void lost(Connection& c, const std::string& why) {
    if (c.over) return;
    c.over = true;
    if (c.provoked) return;
    ++ends_not_ours_;
    if (c.target != nullptr && c.target->steady && c.established)
      give_up(3,
              "a steady connection ended in " + std::string(kNames[static_cast<std::size_t>(c.action)]) + ": " + why);
  }

  void end_all() {
    for (auto& [number, c] : connections_) {
      c->provoked = c->over = true;
      if (c->established) rdma_disconnect(c->id);
    }
  }

  void reap() {
    const auto now = Clock::now();
    for (auto at = connections_.begin(); at != connections_.end();) {
      Connection& c = *at->second;
      if (!c.over && now > c.deadline) {
        if (c.target->steady) give_up(4, "no progress in " + std::string(kNames[static_cast<std::size_t>(c.action)]));
        lost(c, "no progress");
      }
      if (!c.over) {
        ++at;
        continue;
      }
      if (c.id->qp != nullptr) rdma_destroy_qp(c.id);
      if (c.window != nullptr) good(ibv_dealloc_mw(c.window), "ibv_dealloc_mw");
      if (c.mr != nullptr) good(ibv_dereg_mr(c.mr), "ibv_dereg_mr");
      good(rdma_destroy_id(c.id), "rdma_destroy_id");
      at = connections_.erase(at);
    }
  }

  // What the allocator keeps for later goes back, so that memory in use can be told by its residence.
  static void rest() {
    malloc_trim(0);
    std::printf("rests\n");
    std::fflush(stdout);
  }

  // --- requests ---

  static std::uint64_t id_of(const Connection& c, std::uint64_t request) { return c.number << 8 | request; }

  ibv_sge sge(Connection& c, std::size_t at, std::size_t octets) const {
    return {reinterpret_cast<std::uintptr_t>(c.memory.data()) + at, static_cast<std::uint32_t>(octets), c.mr->lkey};
  }

  void receive(Connection& c, std::size_t n) {
    ibv_sge memory = sge(c, kIn + n * kMessage, kMessage);
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = id_of(c, kReceived + n);
    wr.sg_list = &memory;
    wr.num_sge = 1;
    if (const int rc = ibv_post_recv(c.id->qp, &wr, &bad); rc != 0) lost(c, "ibv_post_recv");
  }

  void post(Connection& c, ibv_wr_opcode opcode, std::uint64_t request, ibv_sge memory, std::uint64_t address = 0,
            std::uint32_t key = 0, std::uint32_t immediate = 0) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = id_of(c, request);
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &memory;
    wr.num_sge = 1;
    if (opcode == IBV_WR_SEND_WITH_INV)
      wr.invalidate_rkey = key;
    else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      wr.wr.atomic = {address, immediate, 0, key};
    else
      wr.wr.rdma = {address, key};
    if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM) wr.imm_data = htonl(immediate);
    if (const int rc = ibv_post_send(c.id->qp, &wr, &bad); rc != 0) lost(c, "ibv_post_send");
  }

  // Header, and the octets of an echo behind it.
  void send(Connection& c, const Header& header, std::uint32_t invalidates = 0) {
    if (c.sending) {
      if (c.waiting) give_up(3, "two answers wait");
      c.waiting.emplace(header, invalidates);
      return;
    }
    const bool echo = header.kind == Kind::kEcho || header.kind == Kind::kEchoed;
    std::memcpy(c.out(sizeof header).data(), &header, sizeof header);
    const std::size_t octets = sizeof header + (echo ? header.octets : 0);
    if (echo) fill(c.out(octets).subspan(sizeof header), header.seed);
    c.sending = true;
    post(c, invalidates != 0 ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND, kSendDone, sge(c, kOut, octets), 0, invalidates);
  }

  std::uint32_t draw(std::uint32_t from, std::uint32_t to) {
    return std::uniform_int_distribution<std::uint32_t>(from, to)(random_);
  }

  void verified(std::span<const std::byte> memory, std::uint64_t seed, const char* what) {
    if (!holds(memory, seed)) give_up(3, std::string("wrong octets by ") + what);
    octets_ += memory.size();
  }

  Action choose() {
    const std::uint32_t n = draw(0, 999);
    if (n >= 10) {
      constexpr std::array kTraffic = {Action::kEcho, Action::kWrite,  Action::kImmediate,
                                       Action::kRead, Action::kAtomic, Action::kWindow};
      return kTraffic[n % kTraffic.size()];
    }
    constexpr std::array kEnds = {Action::kBadKey, Action::kTooLong, Action::kToErr, Action::kDisconnect,
                                  Action::kDrop};
    return kEnds[n % kEnds.size()];
  }

  void begin_action(Connection& c) {
    c.action = choose();
    ++actions_[static_cast<std::size_t>(c.action)];
    c.seed = random_();
    c.octets = draw(0, 3) == 0 ? static_cast<std::uint32_t>(kArea) : draw(1, 4096);
    c.deadline = Clock::now() + (c.target->steady ? kSteadyPatience : kPatience);
    switch (c.action) {
      case Action::kEcho:
        c.octets = draw(0, kMessage - sizeof(Header));
        return send(c, {Kind::kEcho, c.octets, c.seed, 0, 0, 0});
      case Action::kWrite:
        fill(c.area(c.octets), c.seed);
        post(c, IBV_WR_RDMA_WRITE, kWriteDone, sge(c, 0, c.octets), c.peer.address, c.peer.rkey);
        if (!c.over) send(c, {Kind::kWritten, c.octets, c.seed, 0, 0, 0});
        return;
      case Action::kImmediate:
        c.seed &= 0xffffffff;
        fill(c.area(c.octets), c.seed);
        return post(c, IBV_WR_RDMA_WRITE_WITH_IMM, kWriteDone, sge(c, 0, c.octets), c.peer.address, c.peer.rkey,
                    static_cast<std::uint32_t>(c.seed));
      case Action::kRead:
        return send(c, {Kind::kPrepare, c.octets, c.seed, 0, 0, 0});
      case Action::kAtomic:
        return post(c, IBV_WR_ATOMIC_FETCH_AND_ADD, kAtomicDone, sge(c, kCounter + 8, 8), c.peer.address + kCounter,
                    c.peer.rkey, static_cast<std::uint32_t>(c.octets));
      case Action::kWindow:
        return send(c, {Kind::kBind, c.octets, c.seed, 0, 0, 0});
      default:
        return end(c);
    }
  }

  // By an error or a disconnect: what comes after is expected.
  void end(Connection& c) {
    c.provoked = true;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    switch (c.action) {
      case Action::kBadKey:
        return post(c, IBV_WR_RDMA_WRITE, kWriteDone, sge(c, 0, 100), c.peer.address, c.peer.rkey ^ 0x5500);
      case Action::kTooLong:
        return post(c, IBV_WR_SEND, kWriteDone, sge(c, 0, kMessage + 1));
      case Action::kToErr:
        good(ibv_modify_qp(c.id->qp, &attr, IBV_QP_STATE), "ibv_modify_qp");
        return;
      case Action::kDisconnect:
        good(rdma_disconnect(c.id), "rdma_disconnect");
        return;
      default:
        c.over = true;
    }
  }

  void take_completions(bool event) {
    if (event) {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      good(ibv_get_cq_event(completions_, &cq, &context), "ibv_get_cq_event");
      ibv_ack_cq_events(cq, 1);
      good(ibv_req_notify_cq(cq_, 0), "ibv_req_notify_cq");
    }
    std::array<ibv_wc, 32> some;
    int n = 0;
    while ((n = ibv_poll_cq(cq_, static_cast<int>(some.size()), some.data())) > 0)
      for (const ibv_wc& wc : std::span(some).first(static_cast<std::size_t>(n))) take(wc);
    if (n < 0) give_up(3, "ibv_poll_cq failed");
  }

  void take(const ibv_wc& wc) {
    const auto found = connections_.find(wc.wr_id >> 8);
    if (found == connections_.end()) give_up(3, "a completion of a queue pair that was destroyed");
    Connection& c = *found->second;
    if (wc.status != IBV_WC_SUCCESS) return lost(c, ibv_wc_status_str(wc.status));
    if (c.over) return;
    const std::uint64_t request = wc.wr_id & 0xff;
    if (c.provoked) return;  // a Send succeeds when it is on its way, whether or not there is room at the other end
    switch (request) {
      case kSendDone:
        c.sending = false;
        if (const auto next = std::exchange(c.waiting, std::nullopt)) send(c, next->first, next->second);
        return;
      case kWriteDone:
      case kBindDone:
        return;
      case kReadDone:
        verified(c.area(c.octets), c.seed, "Read");
        return begin_action(c);
      case kAtomicDone: {
        std::uint64_t before = 0;
        std::memcpy(&before, c.memory.data() + kCounter + 8, sizeof before);
        if (before != c.counter) give_up(3, "a wrong result of an atomic");
        c.counter += c.octets;
        return begin_action(c);
      }
      default:
        return arrived(c, request - kReceived, wc);
    }
  }

  void arrived(Connection& c, std::size_t n, const ibv_wc& wc) {
    if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
      receive(c, n);
      verified(c.area(wc.byte_len), ntohl(wc.imm_data), "Write with immediate");
      return send(c, {Kind::kDone, 0, 0, 0, 0, 0});
    }
    const std::span<std::byte> message = std::span(c.memory).subspan(kIn + n * kMessage, wc.byte_len);
    Header header;
    if (message.size() < sizeof header) give_up(3, "a message without a header");
    std::memcpy(&header, message.data(), sizeof header);
    if (header.kind == Kind::kEcho || header.kind == Kind::kEchoed) {
      if (message.size() != sizeof header + header.octets) give_up(3, "a wrong length");
      verified(message.subspan(sizeof header), header.seed, "Send");
    }
    receive(c, n);
    if (!c.over) c.target == nullptr ? answer(c, header, wc) : answered(c, header);
  }

  // What the passive side does.
  void answer(Connection& c, const Header& header, const ibv_wc& wc) {
    switch (header.kind) {
      case Kind::kEcho:
        return send(c, {Kind::kEchoed, header.octets, header.seed + 1, 0, 0, 0});
      case Kind::kWritten:
        verified(c.area(header.octets), header.seed, "Write");
        return send(c, {Kind::kDone, 0, 0, 0, 0, 0});
      case Kind::kPrepare:
        fill(c.area(header.octets), header.seed);
        return send(c, {Kind::kPrepared, 0, 0, 0, 0, 0});
      case Kind::kBind:
        return bind(c, header);
      case Kind::kWindowWritten:
        if ((wc.wc_flags & IBV_WC_WITH_INV) == 0 || c.window == nullptr || wc.invalidated_rkey != c.window->rkey)
          give_up(3, "a wrong invalidation");
        verified(c.area(header.octets), header.seed, "Write by a window");
        good(ibv_dealloc_mw(c.window), "ibv_dealloc_mw");
        c.window = nullptr;
        return send(c, {Kind::kDone, 0, 0, 0, 0, 0});
      default:
        give_up(3, "a wrong request");
    }
  }

  void bind(Connection& c, const Header& header) {
    if (c.window == nullptr) c.window = made(ibv_alloc_mw(pd_, IBV_MW_TYPE_2), "ibv_alloc_mw");
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = id_of(c, kBindDone);
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw.mw = c.window;
    wr.bind_mw.rkey = ibv_inc_rkey(c.window->rkey);
    wr.bind_mw.bind_info = {c.mr, reinterpret_cast<std::uintptr_t>(c.memory.data()), header.octets,
                            IBV_ACCESS_REMOTE_WRITE};
    if (ibv_post_send(c.id->qp, &wr, &bad) != 0) return lost(c, "ibv_post_send");
    c.window->rkey = wr.bind_mw.rkey;
    send(c, {Kind::kBound, header.octets, header.seed, reinterpret_cast<std::uintptr_t>(c.memory.data()),
             c.window->rkey, 0});
  }

  // What the active side makes of the answer.
  void answered(Connection& c, const Header& header) {
    switch (header.kind) {
      case Kind::kEchoed:
        if (header.seed != c.seed + 1) give_up(3, "a wrong echo");
        break;
      case Kind::kDone:
        break;
      case Kind::kPrepared:
        return post(c, IBV_WR_RDMA_READ, kReadDone, sge(c, 0, c.octets), c.peer.address, c.peer.rkey);
      case Kind::kBound:
        fill(c.area(c.octets), c.seed);
        post(c, IBV_WR_RDMA_WRITE, kWriteDone, sge(c, 0, c.octets), header.address, header.rkey);
        if (!c.over) send(c, {Kind::kWindowWritten, c.octets, c.seed, 0, 0, 0}, header.rkey);
        return;
      default:
        give_up(3, "a wrong answer");
    }
    begin_action(c);
  }

  void report() const {
    std::printf("connects %ju ends_not_ours %ju octets %ju", static_cast<std::uintmax_t>(connects_),
                static_cast<std::uintmax_t>(ends_not_ours_), static_cast<std::uintmax_t>(octets_));
    for (std::size_t i = 1; i < kNames.size(); ++i)
      std::printf(" %s %ju", kNames[i], static_cast<std::uintmax_t>(actions_[i]));
    std::printf("\n");
  }

  std::mt19937_64 random_;
  std::vector<Target> targets_;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* completions_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::uint64_t last_number_ = 0, connects_ = 0, ends_not_ours_ = 0, octets_ = 0;
  std::array<std::uint64_t, kNames.size()> actions_{};
  Clock::time_point again_{};
  bool paused_ = false;
};

Target parse(std::string text) {
  Target target;
  target.address.sin_family = AF_INET;
  char address[64] = "", steady[16] = "";
  unsigned port = 0;
  if (std::sscanf(text.c_str(), "%63[^:]:%u:%d:%15s", address, &port, &target.connections, steady) < 3 ||
      inet_pton(AF_INET, address, &target.address.sin_addr) != 1)
    give_up(2, "what is " + text + "?");
  target.address.sin_port = htons(static_cast<std::uint16_t>(port));
  target.steady = std::string_view(steady) == "steady";
  return target;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = 1;
  int port = 0;
  std::vector<Target> targets;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--seed") seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--listen") port = std::atoi(argv[i + 1]);
    if (name == "--to") targets.push_back(parse(argv[i + 1]));
  }
  signal(SIGUSR1, [](int) { toggled = 1; });
  signal(SIGUSR2, [](int) { measured = 1; });
  signal(SIGTERM, [](int) { ended = 1; });
  Peer peer(seed, std::move(targets));
  if (port != 0) peer.listen(static_cast<std::uint16_t>(port));
  std::printf("ready\n");
  std::fflush(stdout);
  peer.run();
  std::fflush(stdout);
  return 0;
}
