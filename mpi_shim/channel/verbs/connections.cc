// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How connections begin, and who is refused.
#include "mpi_shim/channel/verbs/connections.h"

#include <fcntl.h>

#include <algorithm>
#include <new>

#include "llp/clock.h"
#include "mpi_shim/channel/verbs/reasons.h"

namespace ewarp::channel {
namespace {

constexpr int kResolveMs = 2000;
constexpr int kBacklog = 256;
constexpr std::uint64_t kRetryNs = 20'000'000;
constexpr char kNoMemory[] = "no memory";
// Connections that begin, with peers that this end did not ask for. Each has receive buffers, and ends if it does not
// stand in time.
constexpr std::size_t kMostNewcomers = 64;

// Where a request comes from: its port is the connection's, not the one where the peer listens.
bool comes_from(rdma_cm_id* id, const Address& claimed) {
  const auto from = Address::from(*rdma_get_peer_addr(id));
  return from && from->ip == claimed.ip;
}

}  // namespace

// --- opening ---

Refusal Connections::listen(const Parts& parts) {
  assert(channel_ == nullptr && parts.device != nullptr && parts.completions != nullptr);
  parts_ = parts;
  channel_ = rdma_create_event_channel();
  if (channel_ == nullptr) return refused("rdma_create_event_channel");
  if (rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP) != 0) return refused("rdma_create_id");
  sockaddr_storage at = address_.socket_address();
  if (rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&at)) != 0)
    return refused("rdma_bind_addr", address_.text());
  if (rdma_listen(listener_, kBacklog) != 0) return refused("rdma_listen", address_.text());
  address_.port = ntohs(rdma_get_src_port(listener_));
  if (listener_->verbs != nullptr && listener_->verbs != parts_.device->context())
    return {.text = address_.text() + " belongs to another device than " + parts_.device->name(),
            .code = EADDRNOTAVAIL};
  fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  return {};
}

Connections::~Connections() {
  peers_.clear();
  if (listener_ != nullptr) rdma_destroy_id(listener_);
  if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
}

// --- peers ---

void Connections::add_self() {
  assert(peers_.empty());
  by_address_[address_] = 0;
  peers_.resize(1);
  peers_[0].address = address_;
}

PeerId Connections::peer(const Address& address) {
  const auto known = by_address_.find(address);
  if (known != by_address_.end() && !at(known->second).dead) {
    at(known->second).newcomer = false;  // from now on somebody knows its number
    return known->second;
  }
  living_.reserve(std::max(living_.size() + 1, std::min(2 * living_.size(), peers_.size())));
  const PeerId peer = owner_.add_peer();
  peers_.resize(std::max<std::size_t>(peers_.size(), peer + 1));
  assert(!peers_[peer].connection && !peers_[peer].dead);
  peers_[peer].address = address;
  by_address_[address] = peer;  // who is in there has a number
  peers_[peer].place = living_.size();
  living_.push_back(peer);
  return peer;
}

std::optional<PeerId> Connections::living_peer(const Address& address) const {
  const auto known = by_address_.find(address);
  return known != by_address_.end() && !at(known->second).dead ? std::optional(known->second) : std::nullopt;
}

// The peer of a request. A number is for good, so one whose connection never stood is given to the next one. Nothing if
// there are too many.
std::optional<PeerId> Connections::newcomer(const Address& address) {
  if (const auto known = living_peer(address)) return known;
  std::size_t count = 0;
  for (const PeerId id : living_) {
    Peer& p = at(id);
    if (!p.newcomer) continue;
    ++count;
    if (p.connection || p.wanted) continue;
    by_address_.erase(p.address);
    const std::size_t place = p.place;
    p = Peer{};
    p.address = address;
    p.place = place;
    p.newcomer = true;
    by_address_[address] = id;
    return id;
  }
  if (count >= kMostNewcomers) return std::nullopt;
  const PeerId id = peer(address);
  at(id).newcomer = true;
  return id;
}

Connection* Connections::find(std::uint32_t serial) const {
  const auto at = by_serial_.find(serial);
  return at == by_serial_.end() ? nullptr : at->second;
}

Hello Connections::hello(Hello::Answer answer, const Address& to) const {
  return {.address = address_,
          .eager_threshold = static_cast<std::uint32_t>(tuning_.eager_threshold),
          .eager_piece = static_cast<std::uint32_t>(tuning_.eager_piece),
          .receive_depth = tuning_.receive_depth,
          .heartbeat = parts_.heartbeat,
          .ignored_bits = tuning_.ignored_bits,
          .answer = answer,
          .proof = job_.proof(address_, to)};
}

bool Connections::is_of_this_job(const Hello& hello) const {
  return hello.proof == job_.proof(hello.address, address_);
}

rdma_conn_param Connections::parameters(const HelloOctets& hello) const {
  rdma_conn_param p{};
  p.private_data = hello.data();
  p.private_data_len = static_cast<std::uint8_t>(hello.size());
  p.responder_resources = parts_.read_depth;
  p.initiator_depth = parts_.read_depth;
  p.retry_count = 7;
  p.rnr_retry_count = 7;
  return p;
}

Connection& Connections::add(PeerId peer, OwnedId id, Connection::State first) {
  assert(!at(peer).connection && !at(peer).dead);
  auto c = std::make_unique<Connection>(next_serial_++, peer, std::move(id), first);
  by_serial_[c->serial()] = c.get();
  return *(at(peer).connection = std::move(c));
}

// What was refused and why, or empty.
std::string Connections::prepare(Connection& c) {
  return text_of([&] {
    if (c.id()->verbs != parts_.device->context()) return "it is reached by another device than " + address_.text();
    return c.prepare(parts_.device->pd(), *parts_.completions, *parts_.receives, tuning_);
  });
}

// --- the side that begins ---

void Connections::connect(PeerId peer) {
  Peer& p = at(peer);
  if (p.wanted || p.dead) return;
  p.wanted = true;
  p.give_up_at = monotonic_ns() + timeout_ns_;
  timers_changed_ = true;
  if (!p.connection) p.retry_at = 1;  // with the next handle(), not from inside a call
}

void Connections::begin(PeerId peer) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) return fail_to_reach(peer, failed("rdma_create_id"));
  Connection& c = add(peer, OwnedId(id), Connection::State::resolving);
  at(peer).retry_at = 0;
  // From our own address, so that the peer sees the device that we use.
  Address from = address_;
  from.port = 0;
  sockaddr_storage source = from.socket_address(), to = at(peer).address.socket_address();
  if (rdma_resolve_addr(id, reinterpret_cast<sockaddr*>(&source), reinterpret_cast<sockaddr*>(&to), kResolveMs) != 0)
    on_refused(c, std::nullopt, failed("rdma_resolve_addr"));
}

void Connections::on_resolved(Connection& c) {
  if (c.state() != Connection::State::resolving) return;  // it ended meanwhile
  if (rdma_resolve_route(c.id(), kResolveMs) != 0) on_refused(c, std::nullopt, failed("rdma_resolve_route"));
}

void Connections::on_route(Connection& c) {
  if (c.state() != Connection::State::resolving) return;
  if (std::string error = prepare(c); !error.empty()) return on_refused(c, std::nullopt, std::move(error));
  c.enter(Connection::State::connecting);
  const HelloOctets mine = hello(Hello::Answer::welcome, at(c.peer()).address).emit();
  rdma_conn_param p = parameters(mine);
  if (rdma_connect(c.id(), &p) != 0) on_refused(c, std::nullopt, failed("rdma_connect"));
}

// Not connected, for this time: the peer may not listen yet, or be about to connect to us.
void Connections::on_refused(Connection& c, const std::optional<Hello>& hello, std::string why) {
  const PeerId peer = c.peer();
  Peer& p = at(peer);
  destroy(c);
  p.last_refusal = std::move(why);
  if (hello && hello->version != Hello::kVersion) return fail_to_reach(peer, reason::of_version(hello->version));
  if (hello && hello->answer == Hello::Answer::mismatch)
    return fail_to_reach(peer, reason::of_mismatch(this->hello(Hello::Answer::welcome, {}), *hello));
  if (hello && hello->answer == Hello::Answer::stranger) return fail_to_reach(peer, reason::of_stranger(address_));
  if (!p.wanted) return;
  const bool comes_itself = hello && hello->answer == Hello::Answer::crossed;
  timers_changed_ = true;
  p.retry_at = monotonic_ns() + (comes_itself ? 25 : 1) * kRetryNs;
}

// --- the side that is connected to ---

void Connections::refuse(OwnedId id, Hello::Answer answer, const Address& to) {
  const HelloOctets mine = hello(answer, to).emit();
  rdma_reject(id.get(), mine.data(), static_cast<std::uint8_t>(mine.size()));
}

// Two requests that cross: that of the smaller address goes on.
void Connections::on_request(OwnedId id, const std::optional<Hello>& theirs) {
  if (theirs && theirs->version != Hello::kVersion) return refuse(std::move(id), Hello::Answer::version);
  if (theirs && (!comes_from(id.get(), theirs->address) || theirs->address == address_ || !is_of_this_job(*theirs)))
    return refuse(std::move(id), Hello::Answer::stranger);
  if (!theirs || theirs->eager_threshold != tuning_.eager_threshold || theirs->eager_piece != tuning_.eager_piece ||
      theirs->receive_depth != tuning_.receive_depth || theirs->ignored_bits != tuning_.ignored_bits)
    return refuse(std::move(id), Hello::Answer::mismatch);
  const auto newcomer_or_known = newcomer(theirs->address);
  if (!newcomer_or_known) return refuse(std::move(id), Hello::Answer::busy);
  const PeerId from = *newcomer_or_known;
  if (Connection* mine = of(from)) {
    if (!mine->attempting()) return refuse(std::move(id), Hello::Answer::known);
    if (address_ < theirs->address) return refuse(std::move(id), Hello::Answer::crossed);
    destroy(*mine);
  }
  accept(from, std::move(id), *theirs);
}

void Connections::accept(PeerId from, OwnedId owned, const Hello& theirs) {
  rdma_cm_id* const id = owned.get();
  Connection& c = add(from, std::move(owned), Connection::State::accepting);
  at(from).retry_at = 0;
  c.heartbeat = theirs.heartbeat;
  if (std::string error = prepare(c); !error.empty()) {
    const HelloOctets no = hello(Hello::Answer::mismatch, theirs.address).emit();
    rdma_reject(id, no.data(), static_cast<std::uint8_t>(no.size()));
    return on_refused(c, std::nullopt, std::move(error));
  }
  const HelloOctets yes = hello(Hello::Answer::welcome, theirs.address).emit();
  rdma_conn_param p = parameters(yes);
  if (rdma_accept(id, &p) != 0) on_refused(c, std::nullopt, failed("rdma_accept"));
}

// --- both ---

void Connections::established(Connection& c, const std::optional<Hello>& theirs) {
  if (c.stood()) return;
  if (const std::string& failed = at(c.peer()).reason; !failed.empty()) return drop(c, failed.c_str());
  if (c.attempting()) {
    if (!theirs) return drop(c, "it is not an endpoint of this channel");
    if (theirs->version != Hello::kVersion) return drop(c, reason::of_version(theirs->version).c_str());
    if (theirs->address != at(c.peer()).address || !is_of_this_job(*theirs))
      return drop(c, reason::of_stranger(address_).c_str());
    c.heartbeat = theirs->heartbeat;
  }
  c.enter(Connection::State::up);
  Peer& p = at(c.peer());
  p.wanted = false;
  p.newcomer = false;
  p.retry_at = 0;
  p.last_refusal.clear();
  owner_.on_up(c);
}

void Connections::on_event(const rdma_cm_event& event, const std::optional<Hello>& hello) {
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) return on_request(OwnedId(event.id), hello);
  if (event.id == listener_ || event.id->context == nullptr) return;
  Connection& c = *static_cast<Connection*>(event.id->context);
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return on_resolved(c);
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return on_route(c);
    case RDMA_CM_EVENT_ESTABLISHED:
      return established(c, hello);
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return drop(c, "it has disconnected");
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
      if (c.stood()) return drop(c, rdma_event_str(event.event));
      return on_refused(c, hello, reason::of_event(event));
    default:
      return;
  }
}

bool Connections::handle() {
  bool anything = false;
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(channel_, &event) == 0) {
    anything = true;
    const rdma_cm_event copy = *event;
    const bool has_data = copy.event == RDMA_CM_EVENT_CONNECT_REQUEST || copy.event == RDMA_CM_EVENT_ESTABLISHED ||
                          copy.event == RDMA_CM_EVENT_REJECTED;
    const auto theirs =
        has_data ? Hello::parse(copy.param.conn.private_data, copy.param.conn.private_data_len) : std::nullopt;
    rdma_ack_cm_event(event);  // an id is not destroyed before its events are acknowledged
    handle(copy, theirs);
  }
  const std::uint64_t now = monotonic_ns();
  // From behind: one that ends gives its place to the last.
  for (std::size_t i = living_.size(); i-- > 0;) {
    const PeerId peer = living_[i];
    try {
      due(peer, now);
    } catch (const std::bad_alloc&) {
      if (at(peer).retry_at != 0) at(peer).retry_at = now + kRetryNs;
    }
  }
  return anything;
}

// Without memory it ends what it is about. A request is gone then, and its peer makes another one.
void Connections::handle(const rdma_cm_event& event, const std::optional<Hello>& hello) {
  const auto* about = static_cast<const Connection*>(event.id->context);
  const std::uint32_t serial = about != nullptr ? about->serial() : 0;
  try {
    on_event(event, hello);
  } catch (const std::bad_alloc&) {
    Connection* const c = find(serial);
    if (c == nullptr) return;
    c->stood() ? drop(*c, kNoMemory) : on_refused(*c, std::nullopt, reason::of(kNoMemory));
  }
}

// At most one thing: what follows from it is due with the next handle().
void Connections::due(PeerId peer, std::uint64_t now) {
  const Peer& p = at(peer);
  const bool drains = p.connection && p.connection->state() == Connection::State::draining;
  if (p.wanted && !p.dead && now >= p.give_up_at && !drains)
    fail_to_reach(peer, p.reason.empty() ? reason::of_silence(timeout_ns_, p.last_refusal) : p.reason);
  else if (p.retry_at != 0 && now >= p.retry_at && !p.connection)
    begin(peer);
  else if (drains && now >= p.connection->give_up_at)
    finish_drained(peer);
}

std::uint64_t Connections::deadline() const {
  std::uint64_t first = 0;
  const auto earlier = [&first](std::uint64_t t) { first = t != 0 && (first == 0 || t < first) ? t : first; };
  for (const PeerId peer : living_) {
    const Peer& p = at(peer);
    earlier(p.retry_at);
    if (p.wanted) earlier(p.give_up_at);
    if (p.connection && p.connection->state() == Connection::State::draining) earlier(p.connection->give_up_at);
  }
  return first;
}

}  // namespace ewarp::channel
