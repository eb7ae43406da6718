// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Many queue pairs of rdma_cm in one process: one event channel, one completion queue.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>

#include "limits.h"
#include "possessions.h"

namespace limits {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kAtOnce = 64;  // connections on their way
constexpr int kTimeoutMs = 60'000;
constexpr std::uint32_t kMeasured = 2000;  // round trips on one connection among many

using Channel = std::unique_ptr<rdma_event_channel, By<rdma_destroy_event_channel>>;

struct Message {
  std::uint32_t connection, round;
};

struct Side {
  explicit Side(std::uint32_t count) : count(count), ids(count), in(count), out(count) {}
  ~Side() { destroy(); }

  // Called when the first id knows its device.
  void open(ibv_context* verbs) {
    if (pd) return;
    pd.reset(needed(ibv_alloc_pd(verbs), "ibv_alloc_pd"));
    cq.reset(needed(ibv_create_cq(verbs, static_cast<int>(4 * count), nullptr, nullptr, 0), "ibv_create_cq"));
    in_region.reset(
        needed(ibv_reg_mr(pd.get(), in.data(), count * sizeof(Message), IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr"));
    out_region.reset(needed(ibv_reg_mr(pd.get(), out.data(), count * sizeof(Message), 0), "ibv_reg_mr"));
  }
  void create_qp(rdma_cm_id* id, std::uint32_t i) {
    open(id->verbs);
    id->context = reinterpret_cast<void*>(std::uintptr_t{i});
    ids[i] = id;
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq.get();
    init.qp_type = IBV_QPT_RC;
    init.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    checked(rdma_create_qp(id, pd.get(), &init), "rdma_create_qp");
    post_receive(i);
  }
  void post_receive(std::uint32_t i) {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(&in[i]), sizeof(Message), in_region->lkey};
    ibv_recv_wr wr{.wr_id = i, .next = nullptr, .sg_list = &sge, .num_sge = 1}, *bad = nullptr;
    checked(ibv_post_recv(ids[i]->qp, &wr, &bad), "ibv_post_recv");
  }
  void send(std::uint32_t i, Message m) {
    out[i] = m;
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(&out[i]), sizeof(Message), out_region->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = i;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    checked(ibv_post_send(ids[i]->qp, &wr, &bad), "ibv_post_send");
  }
  // Of the next message that arrived; its receive is posted anew.
  std::uint32_t receive(Message* m) {
    for (;;) {
      const ibv_wc wc = next(cq.get());
      if (wc.opcode != IBV_WC_RECV) continue;
      const auto i = static_cast<std::uint32_t>(wc.wr_id);
      *m = in[i];
      post_receive(i);
      return i;
    }
  }
  void destroy() {
    for (rdma_cm_id*& id : ids) {
      if (id == nullptr) continue;
      if (id->qp != nullptr) rdma_destroy_qp(id);
      rdma_destroy_id(std::exchange(id, nullptr));
    }
  }

  const std::uint32_t count;
  Channel channel{needed(rdma_create_event_channel(), "rdma_create_event_channel")};
  Pd pd;
  Cq cq;
  std::vector<rdma_cm_id*> ids;
  std::vector<Message> in, out;
  Mr in_region, out_region;
};

sockaddr_in address(const char* port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

std::uint32_t index_of(const rdma_cm_id* id) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(id->context));
}

// Takes events until done() says so.
void serve(Side& side, const std::function<bool()>& done, const std::function<void(const rdma_cm_event&)>& on_event) {
  while (!done()) {
    rdma_cm_event* event = nullptr;
    checked(rdma_get_cm_event(side.channel.get(), &event), "rdma_get_cm_event");
    const rdma_cm_event copy = *event;
    rdma_ack_cm_event(event);
    must(copy.status == 0, std::string(rdma_event_str(copy.event)) + ": " + std::strerror(std::abs(copy.status)));
    on_event(copy);
  }
}

rdma_conn_param parameters() {
  rdma_conn_param p{};
  p.responder_resources = p.initiator_depth = 1;
  p.retry_count = p.rnr_retry_count = 7;
  return p;
}

void connect_all(Side& side, const char* port) {
  std::uint32_t begun = 0, connected = 0;
  const auto begin = [&] {
    if (begun == side.count) return;
    rdma_cm_id* id = nullptr;
    checked(rdma_create_id(side.channel.get(), &id, reinterpret_cast<void*>(std::uintptr_t{begun}), RDMA_PS_TCP),
            "rdma_create_id");
    side.ids[begun++] = id;
    auto to = address(port);
    checked(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), kTimeoutMs), "rdma_resolve_addr");
  };
  for (std::uint32_t i = 0; i < kAtOnce; ++i) begin();
  serve(
      side, [&] { return connected == side.count; },
      [&](const rdma_cm_event& e) {
        switch (e.event) {
          case RDMA_CM_EVENT_ADDR_RESOLVED:
            return checked(rdma_resolve_route(e.id, kTimeoutMs), "rdma_resolve_route");
          case RDMA_CM_EVENT_ROUTE_RESOLVED: {
            side.create_qp(e.id, index_of(e.id));
            auto p = parameters();
            return checked(rdma_connect(e.id, &p), "rdma_connect");
          }
          case RDMA_CM_EVENT_ESTABLISHED:
            ++connected;
            return begin();
          default:
            must(false, rdma_event_str(e.event));
        }
      });
}

// A round trip on every connection, at most so many under way.
void round_trips(Side& side, std::uint32_t round, std::uint32_t at_once) {
  std::uint32_t sent = 0;
  const auto send = [&] {
    if (sent == side.count) return;
    side.send(sent, {sent, round});
    ++sent;
  };
  for (std::uint32_t i = 0; i < at_once; ++i) send();
  for (std::uint32_t i = 0; i < side.count; ++i) {
    Message m{};
    const std::uint32_t from = side.receive(&m);
    must(m.connection == from && m.round == round, "a message of another connection, or of another round");
    send();
  }
}

void await_disconnects(Side& side) {
  std::uint32_t gone = 0;
  serve(
      side, [&] { return gone == side.count; },
      [&](const rdma_cm_event& e) {
        if (e.event == RDMA_CM_EVENT_DISCONNECTED) ++gone;
      });
}

}  // namespace

// Echoes, until all have gone: per connection `rounds` of the client's round_trips(), and what measure() asks.
void many_server(const char* port, std::uint32_t count, std::uint32_t rounds) {
  Side side(count);
  rdma_cm_id* listening = nullptr;
  checked(rdma_create_id(side.channel.get(), &listening, nullptr, RDMA_PS_TCP), "rdma_create_id");
  auto at = address(port);
  checked(rdma_bind_addr(listening, reinterpret_cast<sockaddr*>(&at)), "rdma_bind_addr");
  checked(rdma_listen(listening, 1024), "rdma_listen");
  std::uint32_t accepted = 0, established = 0;
  const long before = resident_kib();
  serve(
      side, [&] { return established == count; },
      [&](const rdma_cm_event& e) {
        if (e.event == RDMA_CM_EVENT_ESTABLISHED) ++established;
        if (e.event != RDMA_CM_EVENT_CONNECT_REQUEST) return;
        side.create_qp(e.id, accepted++);
        auto p = parameters();
        checked(rdma_accept(e.id, &p), "rdma_accept");
      });
  const auto memory = [&](const char* when) {
    std::printf("%s: rss_kib_per_qp %.1f\n", when, static_cast<double>(resident_kib() - before) / count);
  };
  memory("connected");
  const std::uint64_t messages = std::uint64_t{count} * rounds + kMeasured;
  for (std::uint64_t i = 0; i < messages; ++i) {
    Message m{};
    const std::uint32_t from = side.receive(&m);
    side.send(from, m);
  }
  memory("after the messages");
  await_disconnects(side);
  const Stopwatch watch;
  side.destroy();
  watch.say("destroyed", count, "QP");
  rdma_destroy_id(listening);
}

void many_client(const char* port, std::uint32_t count, std::uint32_t rounds) {
  Side side(count);
  Stopwatch watch;
  const auto say = [&](const char* what, double n, const char* unit) {
    watch.say(what, n, unit);
    watch = Stopwatch();
  };
  connect_all(side, port);
  say("connected", count, "QP");
  for (std::uint32_t r = 0; r < rounds; ++r) {
    round_trips(side, r, r == 0 ? kAtOnce : count);
    say(r == 0 ? "round trips, 64 at once" : "round trips, all at once", count, "message");
  }
  for (std::uint32_t i = 0; i < kMeasured; ++i) {
    side.send(0, {0, i});
    Message m{};
    must(side.receive(&m) == 0 && m.round == i, "a wrong message");
  }
  say("round trips on one, the others idle", kMeasured, "message");
  std::this_thread::sleep_for(500ms);
  const double used = cpu_seconds();
  std::this_thread::sleep_for(2s);
  std::printf("idle: %.2f %% of a CPU\n", 100 * (cpu_seconds() - used) / 2);
  watch = Stopwatch();
  for (rdma_cm_id* id : side.ids) checked(rdma_disconnect(id), "rdma_disconnect");
  await_disconnects(side);
  say("disconnected", count, "QP");
  side.destroy();
  say("destroyed", count, "QP");
}

}  // namespace limits
