// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The passive side up to CONNECT_REQUEST: TCP accept and the MPA Request.
//
// Bounds: at most Listener::kMaxPending connections of a listener are between accept() and CONNECT_REQUEST, each
// without its Request for the request timeout; at most `backlog` CONNECT_REQUESTs wait for GET_EVENT (the kernel's ucma
// counts the same). Beyond that PendingConnections says who gives up a place; while nobody has to, connections wait in
// TCP's own queue.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "llp/fd.h"
#include "llp/netif.h"
#include "llp/tcp.h"
#include "provider/base/log.h"
#include "provider/base/options.h"
#include "provider/cm/datagram.h"
#include "provider/cm/id.h"
#include "provider/engine/reactor.h"
#include "provider/verbs/device/device.h"

namespace ewarp::cm {
namespace {

using verbs::reactor;
using verbs::Reactor;
using IncomingRef = std::shared_ptr<Incoming>;

constexpr unsigned kMaxBacklog = 1024;  // the kernel's default, also what 0 stands for
constexpr int kTcpBacklog = 128;        // at least: a full TCP queue drops SYNs, and the peer waits a second
constexpr int kAcceptsAtOnce = 64;      // then others get the reactor's thread
constexpr auto kStarvedRetry = std::chrono::milliseconds(100);

void accept_connections(const std::weak_ptr<Id>& weak);

void watch_listener(const Lock&, const IdRef& id) EWARP_REQUIRES(manager_mutex);

// timer: the listener's.
void watch_again_at(const IdRef& id, Reactor::Clock::time_point time, std::uint64_t Listener::*timer)
    EWARP_REQUIRES(manager_mutex) {
  (*id->listener).*timer = reactor().add_timer(time, [weak = std::weak_ptr(id), timer] {
    const IdRef alive = weak.lock();
    if (alive == nullptr) return;
    const Lock lock;
    if (alive->listener == nullptr) return;
    (*alive->listener).*timer = 0;
    watch_listener(lock, alive);
  });
}

void watch_listener(const Lock&, const IdRef& id) EWARP_REQUIRES(manager_mutex) {
  Listener& l = *id->listener;
  if (l.watching || l.retry_timer != 0) return;
  if (const auto now = Reactor::Clock::now(); !l.pending.has_room(now)) {
    const auto next = l.room_timer == 0 ? l.pending.next_victim_at(now) : std::nullopt;
    if (next) watch_again_at(id, *next, &Listener::room_timer);
    return;
  }
  l.watching = true;
  reactor().watch(id->socket.fd(), POLLIN, [weak = std::weak_ptr(id)](std::uint32_t) { accept_connections(weak); });
}

// Out of descriptors or memory: the listening socket stays readable, so waiting for readiness would spin.
void starve(const IdRef& id, int error) EWARP_REQUIRES(manager_mutex) {
  Listener& l = *id->listener;
  if (!l.starved)
    log::error("listener {} cannot accept connections: {}; raise the hard limit on open files (ulimit -Hn)",
               id->local.text(), std::strerror(error));
  l.starved = true;
  watch_again_at(id, Reactor::Clock::now() + kStarvedRetry, &Listener::retry_timer);
}

void drop(const Lock& lock, const IncomingRef& incoming) EWARP_REQUIRES(manager_mutex) {
  incoming->done = true;
  reactor().cancel_timer(incoming->timer);
  incoming->socket.close();
  const IdRef id = incoming->listener.lock();
  if (id == nullptr || id->listener == nullptr) return;
  id->listener->open.erase(incoming->number);
  id->listener->pending.remove(incoming->number);
  watch_listener(lock, id);
}

// What a Request that negotiates nothing (revision 1, or 0x3fff) leaves open is reported as our maximum.
unsigned depth(std::uint16_t value, bool enhanced) {
  if (!enhanced || value == mpa::kDepthNotNegotiated) return verbs::kMaxRdAtomic;
  return std::min<unsigned>(value, verbs::kMaxRdAtomic);
}

// Makes the new id and queues its CONNECT_REQUEST. The peer's IRD bounds what we may have outstanding, its ORD is what
// it wants to have: initiator_depth and responder_resources as the consumer of this side must read them.
void announce(const Lock& lock, const IdRef& id, const IncomingRef& incoming) EWARP_REQUIRES(manager_mutex) {
  incoming->done = true;
  if (incoming->guarded) reactor().unwatch(incoming->socket.fd());
  id->listener->open.erase(incoming->number);
  id->listener->pending.serve(incoming->number);
  IdRef fresh;
  if (const int error = new_id(lock, id->file, 0, id->port_space, id->qp_type, &fresh); error != 0) {
    log::error("no room for a connection request from {}: {}", incoming->remote.text(), std::strerror(error));
    return;  // closes with the last reference
  }
  fresh->local = incoming->local;
  fresh->remote = incoming->remote;
  fresh->device = incoming->device;
  fresh->options = id->options;
  fresh->socket = std::move(incoming->socket);
  fresh->responder = std::move(incoming->responder);
  fresh->enter(State::request);
  fresh->unheard_of = true;

  const mpa::Responder& r = *fresh->responder;
  const bool enhanced = r.request().enhanced.has_value();
  Event event;
  event.owner = id;
  event.request = fresh;
  event.body.uid = id->uid;
  event.body.id = fresh->number;
  event.body.event = static_cast<std::uint32_t>(EventType::connect_request);
  event.body.param.conn = event_param(depth(r.peer_ord(), enhanced), depth(r.peer_ird(), enhanced), r.private_data());
  ++id->listener->queued;
  id->file->post(std::move(event));
}

// It waits for room in the backlog. A peer that leaves meanwhile, or speaks before it may (RFC 5044 section 7.1.2),
// takes up no place.
void guard(const IncomingRef& incoming) {
  incoming->guarded = true;
  reactor().watch(incoming->socket.fd(), POLLIN, [incoming](std::uint32_t) {
    const Lock lock;
    if (incoming->done) return;
    // The readiness may be that of the Request, which was received meanwhile.
    std::byte octet;
    const long n = llp::receive_now(incoming->socket.fd(), MutableOctets(&octet, 1), MSG_PEEK);
    if (n == -EAGAIN || n == -EINTR) return guard(incoming);
    drop(lock, incoming);
  });
}

void announce_complete(const Lock& lock, const IdRef& id) EWARP_REQUIRES(manager_mutex) {
  Listener& l = *id->listener;
  while (l.queued < l.backlog) {
    const auto next = l.pending.next_complete();
    if (!next) return;
    const IncomingRef incoming = l.open.at(*next);
    announce(lock, id, incoming);
  }
  for (const auto& [number, incoming] : l.open)
    if (incoming->complete && !incoming->guarded) guard(incoming);
}

void on_request(const IncomingRef& incoming);

void await_request(const IncomingRef& incoming) {
  reactor().watch(incoming->socket.fd(), POLLIN, [incoming](std::uint32_t) { on_request(incoming); });
}

// Takes what has arrived of the Request.
void receive_request(const Lock& lock, const IdRef& id, const IncomingRef& incoming) EWARP_REQUIRES(manager_mutex) {
  std::byte buffer[mpa::kStartupHeader + mpa::kMaxPrivateData];
  auto outcome = mpa::Responder::Outcome::more;
  while (outcome == mpa::Responder::Outcome::more) {
    const auto want = std::min(incoming->responder->want(), sizeof(buffer));
    const long n = llp::receive_now(incoming->socket.fd(), MutableOctets(buffer).first(want));
    if (n == -EAGAIN || n == -EINTR) return await_request(incoming);
    if (n <= 0) return drop(lock, incoming);
    outcome = incoming->responder->feed(Octets(buffer).first(static_cast<std::size_t>(n)));
  }
  if (outcome == mpa::Responder::Outcome::failed) {
    log::info("cm: bad MPA Request from {}: {}", incoming->remote.text(), incoming->responder->why());
    return drop(lock, incoming);  // RFC 5044 section 7.1.2: no Reply
  }
  reactor().unwatch(incoming->socket.fd());
  reactor().cancel_timer(incoming->timer);
  incoming->complete = true;
  id->listener->pending.complete(incoming->number);
}

// Requests that came together are announced in the order of accept(), whichever socket is reported first: programs with
// several queue pairs connect them in turn and pair them by that order (perftest). A peer that says nothing holds up
// nobody; looking for its Request costs one receive, kMaxPending bounds them.
void on_request(const IncomingRef& incoming) {
  const IdRef id = incoming->listener.lock();
  const Lock lock;
  if (incoming->done || incoming->complete || id == nullptr || id->listener == nullptr) return;
  auto& open = id->listener->open;
  for (auto it = open.begin(); it != open.end() && it->first <= incoming->number;) {
    const IncomingRef next = (it++)->second;  // dropping takes it out
    if (!next->complete) receive_request(lock, id, next);
  }
  announce_complete(lock, id);
  watch_listener(lock, id);
}

void make_way(const Lock& lock, Listener& l, Reactor::Clock::time_point now) EWARP_REQUIRES(manager_mutex) {
  const auto victim = l.pending.victim(now);
  if (!victim) return;
  const IncomingRef incoming = l.open.at(*victim);
  log::debug("cm: too many connections wait; one from {} is closed", incoming->remote.text());
  l.pending.evict(*victim, now);
  drop(lock, incoming);
}

void admit(const Lock& lock, const IdRef& id, const IncomingRef& incoming) EWARP_REQUIRES(manager_mutex) {
  Listener& l = *id->listener;
  const auto now = Reactor::Clock::now();
  if (l.pending.size() >= Listener::kMaxPending) make_way(lock, l, now);
  incoming->listener = id;
  incoming->number = ++l.accepted;
  l.open.emplace(incoming->number, incoming);
  l.pending.add(incoming->number, incoming->remote.gid(), now);
  const auto limit = now + std::chrono::milliseconds(options().request_timeout_ms);
  incoming->timer = reactor().add_timer(limit, [weak = std::weak_ptr(incoming)] {
    const IncomingRef alive = weak.lock();
    if (alive == nullptr) return;
    const Lock held;
    if (alive->done) return;
    log::info("cm: no MPA Request from {} in time", alive->remote.text());
    drop(held, alive);
  });
  await_request(incoming);
}

// The facts about a fresh connection that take a look at the interfaces: without the lock. False: not for us.
bool prepare(Incoming& incoming, std::optional<std::uint8_t> tos) {
  const int fd = incoming.socket.fd();
  incoming.local = Address::of_socket(fd).unmapped();
  incoming.remote = Address::of_peer(fd).unmapped();
  if (incoming.local.family() == 0 || incoming.remote.family() == 0) return false;  // reset meanwhile
  incoming.device = verbs::device_of(*incoming.local.get());
  if (incoming.device == nullptr) {
    log::info("cm: connection to {} refused: no device on that interface", incoming.local.text());
    return false;
  }
  tune_stream(fd, incoming.remote, llp::is_local(*incoming.remote.get()), tos);
  return true;
}

void accept_connections(const std::weak_ptr<Id>& weak) {
  const IdRef id = weak.lock();
  if (id == nullptr) return;
  Lock lock;
  if (id->listener == nullptr) return;
  id->listener->watching = false;
  for (int i = 0; i < kAcceptsAtOnce && id->listener->pending.has_room(Reactor::Clock::now()); ++i) {
    const int fd = ::accept4(id->socket.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      if (errno == EMFILE && llp::raise_fd_limit()) continue;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return starve(id, errno);
      continue;  // the connection's own error: accept(2)
    }
    const auto tos = id->options.tos;
    lock.unlock();
    auto incoming = std::make_shared<Incoming>();
    incoming->socket = Socket(llp::high_fd(fd));
    const bool good = prepare(*incoming, tos);
    lock.lock();
    if (id->listener == nullptr) return;
    if (good) admit(lock, id, incoming);
  }
  watch_listener(lock, id);
}

}  // namespace

unsigned backlog_of(std::uint32_t wanted) {
  return wanted > 0 && wanted < kMaxBacklog ? wanted : kMaxBacklog;
}

int listen(const IdRef& id, std::uint32_t backlog) {
  if (const int error = reactor().start(); error != 0) return error;
  if (id->is_datagram()) return sidr_listen(id, backlog);
  const std::lock_guard serial(id->command_mutex);
  bool idle;
  {
    const Lock lock;
    if (id->state != State::idle && id->state != State::bound) return EINVAL;
    idle = id->state == State::idle;
  }
  if (idle)
    if (const int error = bind_serialized(id, Address::any(AF_INET)); error != 0) return error;
  const unsigned requests = backlog_of(backlog);
  const Lock lock;
  if (id->state != State::bound) return EINVAL;
  if (::listen(id->socket.fd(), std::max(static_cast<int>(requests), kTcpBacklog)) != 0) return errno;
  id->listener = std::make_unique<Listener>();
  id->listener->backlog = requests;
  id->enter(State::listening);
  watch_listener(lock, id);
  return 0;
}

void request_fetched(const Lock& lock, const IdRef& id) {
  if (id->listener == nullptr) return;
  --id->listener->queued;
  if (id->is_datagram()) return;
  announce_complete(lock, id);
  watch_listener(lock, id);
}

void cancel_listener(const Lock& lock, Id& id) {
  const auto listener = std::move(id.listener);
  reactor().cancel_timer(listener->retry_timer);
  reactor().cancel_timer(listener->room_timer);
  const auto open = std::move(listener->open);
  for (const auto& [number, incoming] : open) drop(lock, incoming);
}

}  // namespace ewarp::cm
