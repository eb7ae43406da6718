// Connections: who begins, who is refused, how they end.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "mpi_shim/channel/link.h"
#include "mpi_shim/channel/verbs_transport.h"

namespace ewarp::channel {
namespace {

constexpr int kResolveMs = 2000;
constexpr int kBacklog = 256;
constexpr std::uint64_t kRetryNs = 20'000'000;
constexpr std::uint64_t kDrainNs = 2'000'000'000;
constexpr std::size_t kOctetsPerReceive = wire::Message::kLongest;  // besides the payload

std::string failed(const char* what) {
  return std::string(what) + ": " + std::strerror(errno);
}

}  // namespace

// --- opening ---

std::string VerbsTransport::listen() {
  if (rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP) != 0) return failed("rdma_create_id");
  sockaddr_storage at = address_.socket_address();
  if (rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&at)) != 0)
    return failed("rdma_bind_addr") + " " + address_.text();
  if (rdma_listen(listener_, kBacklog) != 0) return failed("rdma_listen") + " " + address_.text();
  address_.port = ntohs(rdma_get_src_port(listener_));
  return {};
}

PeerId VerbsTransport::peer(const Address& address) {
  const auto [at, added] = by_address_.try_emplace(address, 0);
  // A peer that ended and came again is another one.
  if (!added && !peers_[at->second].dead) return at->second;
  at->second = add_peer_();
  peers_.resize(std::max<std::size_t>(peers_.size(), at->second + 1));
  peers_[at->second].address = address;
  return at->second;
}

Hello VerbsTransport::hello(Hello::Answer answer) const {
  return {.address = address_,
          .eager_threshold = static_cast<std::uint32_t>(tuning_.eager_threshold),
          .receive_depth = tuning_.receive_depth,
          .heartbeat = {.address = reinterpret_cast<std::uint64_t>(&heartbeat_), .key = heartbeat_memory_->rkey},
          .ignored_bits = tuning_.ignored_bits,
          .answer = answer};
}

rdma_conn_param VerbsTransport::parameters(const HelloOctets& hello) const {
  rdma_conn_param p{};
  p.private_data = hello.data();
  p.private_data_len = static_cast<std::uint8_t>(hello.size());
  p.responder_resources = read_depth_;
  p.initiator_depth = read_depth_;
  p.retry_count = 7;
  p.rnr_retry_count = 7;
  return p;
}

VerbsTransport::Connection& VerbsTransport::new_connection(PeerId peer, rdma_cm_id* id, bool active) {
  auto c = std::make_unique<Connection>();
  c->serial = next_serial_++;
  c->peer = peer;
  c->id = id;
  c->active = active;
  id->context = c.get();
  connections_[c->serial] = c.get();
  peers_[peer].connection = std::move(c);
  return *peers_[peer].connection;
}

// Queue pair and receives. What was refused and why, or empty.
std::string VerbsTransport::prepare(Connection& c) {
  if (c.id->verbs != context_) return "it is reached by another device than " + address_.text();
  const std::uint32_t receives = Link::receives(tuning_.receive_depth) + 1;  // one for the greeting
  if (!room_in_cq(receives + send_depth_ + 1)) return failed("ibv_resize_cq");
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq_;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {.max_send_wr = send_depth_ + 1,
                    .max_recv_wr = receives,
                    .max_send_sge = 2,
                    .max_recv_sge = 1,
                    .max_inline_data = 256};
  if (rdma_create_qp(c.id, pd_, &attributes) != 0) {
    attributes.cap.max_inline_data = 0;
    if (rdma_create_qp(c.id, pd_, &attributes) != 0) return failed("rdma_create_qp");
  }
  inline_octets_ = attributes.cap.max_inline_data;
  const std::size_t octets = receives * (kOctetsPerReceive + tuning_.eager_threshold);
  c.octets = std::make_unique_for_overwrite<std::byte[]>(octets);
  c.memory = ibv_reg_mr(pd_, c.octets.get(), octets, IBV_ACCESS_LOCAL_WRITE);
  if (c.memory == nullptr) return failed("ibv_reg_mr");
  const std::uint32_t first = Link::receives(Link::first_window(tuning_)) + 1;
  for (std::uint32_t i = 0; i < first; ++i)
    if (!post_receive(c, i)) return failed("ibv_post_recv");
  for (std::uint32_t i = receives; i > first; --i) c.spare.push_back(i - 1);
  return {};
}

// --- the side that begins ---

void VerbsTransport::connect(PeerId peer) {
  Peer& p = peers_[peer];
  if (p.wanted || p.dead) return;
  p.wanted = true;
  p.give_up_at = now() + options_.connect_timeout_ns;
  timers_changed_ = true;
  if (!p.connection) p.retry_at = 1;  // with the next poll(), not from inside a call
  look_at_connections();
}

void VerbsTransport::begin(PeerId peer) {
  peers_[peer].retry_at = 0;
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) return give_up(peer, failed("rdma_create_id"));
  Connection& c = new_connection(peer, id, true);
  // From our own address, so that the peer sees the device that we use.
  Address from = address_;
  from.port = 0;
  sockaddr_storage source = from.socket_address(), to = peers_[peer].address.socket_address();
  if (rdma_resolve_addr(id, reinterpret_cast<sockaddr*>(&source), reinterpret_cast<sockaddr*>(&to), kResolveMs) != 0)
    on_refused(c, std::nullopt, failed("rdma_resolve_addr"));
}

void VerbsTransport::on_resolved(Connection& c) {
  if (rdma_resolve_route(c.id, kResolveMs) != 0) on_refused(c, std::nullopt, failed("rdma_resolve_route"));
}

void VerbsTransport::on_route(Connection& c) {
  if (const std::string error = prepare(c); !error.empty()) return on_refused(c, std::nullopt, error);
  c.state = Connection::State::connecting;
  const HelloOctets mine = hello(Hello::Answer::welcome).emit();
  rdma_conn_param p = parameters(mine);
  if (rdma_connect(c.id, &p) != 0) on_refused(c, std::nullopt, failed("rdma_connect"));
}

// Not connected, for this time: the peer may not listen yet, or be about to connect to us.
void VerbsTransport::on_refused(Connection& c, const std::optional<Hello>& hello, const std::string& why) {
  const PeerId peer = c.peer;
  Peer& p = peers_[peer];
  destroy(c);
  p.reason = why;
  if (hello && hello->answer == Hello::Answer::mismatch)
    return give_up(peer, "it has another eager_threshold, receive_depth or ignored_bits");
  if (!p.wanted) return;
  const bool comes_itself = hello && hello->answer == Hello::Answer::crossed;
  timers_changed_ = true;
  p.retry_at = now() + (comes_itself ? 25 : 1) * kRetryNs;
}

// --- the side that is connected to ---

void VerbsTransport::refuse(rdma_cm_id* id, Hello::Answer answer) {
  const HelloOctets mine = hello(answer).emit();
  rdma_reject(id, mine.data(), static_cast<std::uint8_t>(mine.size()));
  rdma_destroy_id(id);
}

// Two requests that cross: that of the smaller address goes on.
void VerbsTransport::on_request(rdma_cm_id* id, const std::optional<Hello>& theirs) {
  if (!theirs || theirs->eager_threshold != tuning_.eager_threshold || theirs->receive_depth != tuning_.receive_depth ||
      theirs->ignored_bits != tuning_.ignored_bits)
    return refuse(id, Hello::Answer::mismatch);
  const PeerId from = peer(theirs->address);
  Connection* mine = peers_[from].connection.get();
  if (mine != nullptr) {
    const bool attempt =
        mine->active && (mine->state == Connection::State::resolving || mine->state == Connection::State::connecting);
    if (!attempt) return refuse(id, Hello::Answer::known);
    if (address_ < theirs->address) return refuse(id, Hello::Answer::crossed);
    destroy(*mine);
  }
  peers_[from].retry_at = 0;
  Connection& c = new_connection(from, id, false);
  c.state = Connection::State::accepting;
  c.heartbeat = theirs->heartbeat;
  if (const std::string error = prepare(c); !error.empty()) {
    const HelloOctets no = hello(Hello::Answer::mismatch).emit();
    rdma_reject(id, no.data(), static_cast<std::uint8_t>(no.size()));
    return on_refused(c, std::nullopt, error);
  }
  const HelloOctets yes = hello(Hello::Answer::welcome).emit();
  rdma_conn_param p = parameters(yes);
  if (rdma_accept(id, &p) != 0) on_refused(c, std::nullopt, failed("rdma_accept"));
}

// --- both ---

void VerbsTransport::on_established(Connection& c, const std::optional<Hello>& hello) {
  if (c.state == Connection::State::up || c.state == Connection::State::draining) return;
  if (c.active) {
    if (!hello) return drop(c, "it is not an endpoint of this channel");
    c.heartbeat = hello->heartbeat;
  }
  c.state = Connection::State::up;
  peers_[c.peer].wanted = false;
  peers_[c.peer].retry_at = 0;
  peers_[c.peer].reason.clear();
  greet(c);
  events_->on_peer_up(c.peer);
}

void VerbsTransport::on_event(const rdma_cm_event& event, const std::optional<Hello>& hello) {
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) return on_request(event.id, hello);
  if (event.id == listener_ || event.id->context == nullptr) return;
  Connection& c = *static_cast<Connection*>(event.id->context);
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return on_resolved(c);
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return on_route(c);
    case RDMA_CM_EVENT_ESTABLISHED:
      return on_established(c, hello);
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return drop(c, "it has disconnected");
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
      if (c.state == Connection::State::up || c.state == Connection::State::draining)
        return drop(c, rdma_event_str(event.event));
      return on_refused(c, hello,
                        std::string(rdma_event_str(event.event)) + ", status " + std::to_string(event.status));
    default:
      return;
  }
}

bool VerbsTransport::handle_connections() {
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
    on_event(copy, theirs);
  }
  const std::uint64_t at = now();
  for (PeerId peer = 0; peer < peers_.size(); ++peer) {
    Peer& p = peers_[peer];
    if (p.wanted && !p.dead && at >= p.give_up_at &&
        (!p.connection || p.connection->state != Connection::State::draining))
      give_up(peer, p.reason.empty() ? "no answer" : p.reason);
    else if (p.retry_at != 0 && at >= p.retry_at && !p.connection)
      begin(peer);
    else if (p.connection && p.connection->state == Connection::State::draining && at >= p.connection->give_up_at)
      finish_drained(peer);
  }
  return anything;
}

std::uint64_t VerbsTransport::deadline() const {
  std::uint64_t first = 0;
  const auto earlier = [&first](std::uint64_t t) { first = t != 0 && (first == 0 || t < first) ? t : first; };
  for (const Peer& p : peers_) {
    if (p.dead) continue;
    earlier(p.retry_at);
    if (p.wanted) earlier(p.give_up_at);
    if (p.connection && p.connection->state == Connection::State::draining) earlier(p.connection->give_up_at);
  }
  return first;
}

// --- ends ---

void VerbsTransport::fail(PeerId peer, const char* why) {
  if (peers_[peer].connection) drop(*peers_[peer].connection, why);
}

// Everything that the adapter has comes back first; then on_peer_down() follows, from poll().
void VerbsTransport::drop(Connection& c, const std::string& why) {
  if (c.state == Connection::State::draining) {
    if (c.sends == 0 && c.receives == 0) draining_.push_back(c.peer);
    return;
  }
  c.state = Connection::State::draining;
  c.give_up_at = now() + kDrainNs;
  timers_changed_ = true;
  peers_[c.peer].reason = why;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  if (c.id->qp != nullptr) ibv_modify_qp(c.id->qp, &attributes, IBV_QP_STATE);
  draining_.push_back(c.peer);
}

void VerbsTransport::finish_drained(PeerId peer) {
  Connection* c = peers_[peer].connection.get();
  if (c == nullptr || c->state != Connection::State::draining) return;
  if ((c->sends > 0 || c->receives > 0) && now() < c->give_up_at) return;
  const std::string why = peers_[peer].reason;
  give_up(peer, why);
}

// Requests that did not come back are given back here: the queue pair is gone, so nobody uses their memory.
void VerbsTransport::destroy(Connection& c) {
  rdma_cm_id* id = c.id;
  if (id->qp != nullptr) rdma_destroy_qp(id);
  rdma_destroy_id(id);
  if (c.memory != nullptr) {
    ibv_dereg_mr(c.memory);
    cq_used_ -= Link::receives(tuning_.receive_depth) + send_depth_ + 2;
  }
  for (std::uint32_t i = 0; c.sends > 0 && i < records_.size(); ++i) {
    if (records_[i].serial != c.serial) continue;
    const Record record = std::exchange(records_[i], Record{});
    give_back(record);
    free_records_.push_back(i);
    if (record.told && events_ != nullptr) events_->on_complete(record.cookie, false);
    --c.sends;
  }
  connections_.erase(c.serial);
  peers_[c.peer].connection.reset();
}

void VerbsTransport::give_up(PeerId peer, const std::string& why) {
  Peer& p = peers_[peer];
  if (p.connection) destroy(*p.connection);
  p.dead = true;
  p.wanted = false;
  p.retry_at = 0;
  p.reason = why;
  events_->on_peer_down(peer);
}

void VerbsTransport::close(std::uint64_t patience_ns) {
  const std::uint64_t until = now() + patience_ns;
  for (const Peer& p : peers_)
    if (p.connection && p.connection->state == Connection::State::up) rdma_disconnect(p.connection->id);
  const auto standing = [this] {
    return std::any_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.connection != nullptr; });
  };
  while (standing() && now() < until) {
    look_at_connections();
    poll();
  }
  for (PeerId peer = 0; peer < peers_.size(); ++peer)
    if (peers_[peer].connection) give_up(peer, "this end was closed");
}

}  // namespace ewarp::channel
