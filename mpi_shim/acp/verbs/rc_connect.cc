// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How connections begin and end, and who is refused.
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>

#include "llp/clock.h"
#include "mpi_shim/acp/verbs/rc_transport.h"

namespace ewarp::acp {
namespace {

using State = RcOutbound::State;

constexpr int kRetryMs = 20;                              // between two tries
constexpr std::uint64_t kPatienceNs = 30'000'000'000;     // a peer that lives answers before, even if it was stopped
constexpr std::uint32_t kMostOfAMember = 2 * 2 * kLanes;  // connections: those that end, those that take their place

// Takes as long for a wrong one as for the right one.
bool same_secret(const RcHello& one, const RcHello& other) {
  unsigned differences = 0;
  for (std::size_t i = 0; i < sizeof one.secret; ++i)
    differences |= static_cast<unsigned char>(one.secret[i] ^ other.secret[i]);
  return differences == 0;
}

// Whether there is no connection behind it.
bool ends(rdma_cm_event_type what) {
  switch (what) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
    case RDMA_CM_EVENT_ESTABLISHED:
    case RDMA_CM_EVENT_ADDR_CHANGE:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return false;
    default:
      return true;
  }
}

}  // namespace

// What is left of one of rdma_cm's events when it has been acknowledged: an id is not destroyed before.
struct RcTransport::Event {
  rdma_cm_event_type what;
  rdma_cm_id* id;
  std::uint8_t responder_resources, initiator_depth;
  std::optional<RcHello> hello;
};

// --- both ends ---

// Empty-handed: false, and the end has to be closed.
bool RcTransport::prepare(RcEnd& end) {
  if (end.id()->verbs != device_.context()) return false;
  if (!device_.make_room(static_cast<int>(reserved_ + end.completions()))) return false;
  if (!end.create(device_.pd(), device_.cq())) return false;
  reserved_ += end.completions();
  return true;
}

void RcTransport::close(RcEnd& end) {
  if (end.id() != nullptr && end.id()->qp != nullptr) reserved_ -= end.completions();
  end.close();
}

rdma_conn_param RcTransport::parameters(const Event* request) const {
  const auto depth = static_cast<std::uint8_t>(place_.reads);
  rdma_conn_param p{};
  p.responder_resources = request == nullptr ? depth : std::min(depth, request->responder_resources);
  p.initiator_depth = request == nullptr ? depth : std::min(depth, request->initiator_depth);
  p.retry_count = 7;
  p.rnr_retry_count = 7;
  return p;
}

// --- the side that begins ---

void RcTransport::connect(RcOutbound& o) {
  o.enter(State::resolving);
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) return try_later(o);
  o.own(id);
  // From our own address, so that the peer sees the device that we use.
  sockaddr_storage from = place_.address, to = address_of(o.peer.contact);
  if (rdma_resolve_addr(id, reinterpret_cast<sockaddr*>(&from), reinterpret_cast<sockaddr*>(&to), kResolveMs) != 0)
    try_later(o);
}

void RcTransport::resolved(RcOutbound& o) {
  if (rdma_resolve_route(o.id(), kResolveMs) != 0) try_later(o);
}

void RcTransport::ask(RcOutbound& o) {
  if (!prepare(o)) return try_later(o);
  o.enter(State::connecting);
  RcHello hello = hello_;
  hello.lane = static_cast<std::uint32_t>(o.lane());
  rdma_conn_param p = parameters(nullptr);
  p.private_data = &hello;
  p.private_data_len = sizeof hello;
  if (rdma_connect(o.id(), &p) != 0) try_later(o);
}

void RcTransport::established(RcOutbound& o) {
  o.enter(State::up);
  o.give_up = 0;
  // It lives, so it has refused the access.
  if (RcSlot* refused = o.queue.suspect()) done(*refused, EACCES);
  if (!o.post_receives()) return break_off(o);
  pump(o);
  settle(o);
}

void RcTransport::try_later(RcOutbound& o) {
  const std::uint64_t now = monotonic_ns();
  close(o);
  if (o.give_up == 0) o.give_up = now + kPatienceNs;
  if (now >= o.give_up) return lose(o);
  o.enter(State::pausing);
  o.again = now + std::uint64_t{kRetryMs} * 1'000'000;
  o.next_pausing = pausing_;
  pausing_ = &o;
}

void RcTransport::try_again() {
  const std::uint64_t now = monotonic_ns();
  RcOutbound* o = pausing_;
  pausing_ = nullptr;
  while (o != nullptr) {
    RcOutbound* next = o->next_pausing;
    if (o->again <= now) {
      connect(*o);
    } else {
      o->next_pausing = pausing_;
      pausing_ = o;
    }
    o = next;
  }
}

void RcTransport::break_off(RcOutbound& o) {
  o.enter(State::draining);
  o.flush();
  if (o.drained()) drained(o);
}

void RcTransport::drained(RcOutbound& o) {
  close(o);
  if (!o.wanted || o.lane() == Lane::channels) return lose(o);
  o.queue.restart();
  if (o.queue.empty())
    o.enter(State::idle);
  else
    connect(o);
}

void RcTransport::lose(RcOutbound& o) {
  o.enter(State::lost);
  if (RcSlot* slot = o.queue.suspect()) done(*slot, ECONNRESET);
  while (RcSlot* slot = o.queue.pop()) done(*slot, ECONNRESET);
}

void RcTransport::end(RcOutbound& o) {
  o.wanted = false;
  if (o.state() == State::pausing) {
    RcOutbound** at = &pausing_;
    while (*at != &o) at = &(*at)->next_pausing;
    *at = o.next_pausing;
  }
  switch (o.state()) {
    case State::idle:
    case State::resolving:
    case State::connecting:
    case State::pausing:
      close(o);
      return lose(o);
    case State::up:
    case State::draining:
      while (RcSlot* slot = o.queue.pop_waiting()) done(*slot, ECONNRESET);
      if (o.state() == State::up) break_off(o);
      return;
    case State::lost:
      return;
  }
}

void RcTransport::lose(Peer& peer) {
  if (peer.path == nullptr) return;
  for (auto& o : static_cast<RcLanes*>(peer.path)->to)
    if (o != nullptr) end(*o);
}

void RcTransport::forget(Peer& peer) {
  delete static_cast<RcLanes*>(peer.path);
  peer.path = nullptr;
}

// --- the side that is connected to ---

bool RcTransport::is_member(const Event& event) const {
  return event.hello && event.hello->version == RcHello::kVersion && event.hello->rank < procs_ &&
         event.hello->lane < kLanes && same_secret(*event.hello, hello_) &&
         inbound_count_ < std::uint64_t{kMostOfAMember} * procs_;
}

void RcTransport::called(const Event& event) {
  RcInbound* in = is_member(event) ? new (std::nothrow) RcInbound(static_cast<Lane>(event.hello->lane)) : nullptr;
  if (in == nullptr) {
    rdma_reject(event.id, nullptr, 0);
    rdma_destroy_id(event.id);
    return;
  }
  in->own(event.id);
  in->behind = inbounds_;
  if (inbounds_ != nullptr) inbounds_->before = in;
  inbounds_ = in;
  ++inbound_count_;
  rdma_conn_param p = parameters(&event);
  if (prepare(*in) && in->post_receives() && rdma_accept(in->id(), &p) == 0) return;
  rdma_reject(in->id(), nullptr, 0);
  end(*in);
  settle(*in);
}

void RcTransport::end(RcInbound& in) {
  in.ending = true;
  in.flush();
}

void RcTransport::settle(RcInbound& in) {
  if (!in.ending || !in.drained()) return;
  (in.before == nullptr ? inbounds_ : in.before->behind) = in.behind;
  if (in.behind != nullptr) in.behind->before = in.before;
  --inbound_count_;
  close(in);
  delete &in;
}

// --- events ---

int RcTransport::serve() {
  rdma_cm_event* e = nullptr;
  while (rdma_get_cm_event(channel_, &e) == 0) {
    Event event{e->event, e->id, e->param.conn.responder_resources, e->param.conn.initiator_depth, {}};
    if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST && e->param.conn.private_data_len >= sizeof(RcHello))
      std::memcpy(&event.hello.emplace(), e->param.conn.private_data, sizeof(RcHello));
    rdma_ack_cm_event(e);
    happened(event);
  }
  if (pausing_ != nullptr) try_again();
  const std::uint64_t one = 1;
  if (done_.first != nullptr) (void)!write(wake_, &one, sizeof one);
  return pausing_ != nullptr ? kRetryMs : -1;
}

void RcTransport::happened(const Event& event) {
  if (event.what == RDMA_CM_EVENT_CONNECT_REQUEST) return called(event);
  auto* of = static_cast<RcEnd*>(event.id->context);
  if (of == nullptr) return;
  if (!of->outbound()) {
    auto& in = static_cast<RcInbound&>(*of);
    if (!ends(event.what) || in.ending) return;
    end(in);
    return settle(in);
  }
  auto& o = static_cast<RcOutbound&>(*of);
  if (o.state() == State::resolving && event.what == RDMA_CM_EVENT_ADDR_RESOLVED) return resolved(o);
  if (o.state() == State::resolving && event.what == RDMA_CM_EVENT_ROUTE_RESOLVED) return ask(o);
  if (o.state() == State::connecting && event.what == RDMA_CM_EVENT_ESTABLISHED) return established(o);
  if (!ends(event.what)) return;
  if (o.state() == State::up) return break_off(o);
  if (o.state() == State::resolving || o.state() == State::connecting) try_later(o);
}

}  // namespace ewarp::acp
