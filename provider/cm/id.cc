// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Ids: their making and end, local and peer addresses, options, disconnecting.
#include "provider/cm/id.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "llp/netif.h"
#include "provider/base/log.h"
#include "provider/cm/datagram.h"
#include "provider/engine/reactor.h"
#include "provider/verbs/device/device.h"
#include "provider/verbs/queue_pair.h"

namespace ewarp::cm {
namespace {

constexpr std::uint32_t kMaxIdNumber = 0xffff;  // librdmacm keeps ids in a 16-bit index

}  // namespace

bool Id::is_datagram() const {
  return port_space == RDMA_PS_UDP || port_space == RDMA_PS_IPOIB || qp_type == IBV_QPT_UD;
}

int new_id(const Lock&, const FileRef& file, std::uint64_t uid, std::uint16_t port_space, std::uint8_t qp_type,
           IdRef* out) {
  Manager& m = manager();
  std::uint32_t number;
  if (file->kernel() != nullptr) {
    if (const int error = file->kernel()->create_id(uid, port_space, qp_type, &number); error != 0) return error;
  } else if (!m.free_numbers.empty()) {
    number = m.free_numbers.extract(m.free_numbers.begin()).value();
  } else if (m.next_number <= kMaxIdNumber) {
    number = m.next_number++;
  } else {
    return ENOMEM;
  }
  auto id = std::make_shared<Id>();
  id->number = number;
  id->uid = uid;
  id->port_space = port_space;
  id->qp_type = qp_type;
  id->file = file;
  m.ids[number] = id;
  try {
    file->ids().insert(number);
  } catch (const std::bad_alloc&) {
    m.ids.erase(number);
    throw;
  }
  *out = std::move(id);
  return 0;
}

int find_id(const Lock&, const FileRef& file, std::uint32_t number, IdRef* out) {
  const auto it = manager().ids.find(number);
  if (it == manager().ids.end()) return ENOENT;
  if (it->second->file != file || it->second->unheard_of) return EINVAL;
  *out = it->second;
  return 0;
}

std::shared_ptr<verbs::QueuePair> destroy(const Lock& lock, const IdRef& id) {
  Manager& m = manager();
  const auto at = m.ids.find(id->number);
  if (at == m.ids.end() || at->second != id) return nullptr;  // destroyed; the number may be another's by now
  m.ids.erase(at);
  auto number = id->file->ids().extract(id->number);
  if (id->file->kernel() == nullptr) m.free_numbers.insert(std::move(number));

  const State was = id->state;
  id->enter(State::destroyed);
  cancel_attempt(lock, *id);
  cancel_sidr(lock, *id);
  leave_all(lock, *id);
  if (id->listener != nullptr) cancel_listener(lock, *id);
  for (Event& event : id->file->take_events_of(*id))
    if (event.request != nullptr) {
      destroy(lock, event.request);
      forget_in_kernel(*event.request);
    }
  id->socket.close();
  id->responder.reset();
  // A close that was asked for goes on by itself: the last messages may still be on their way.
  if (was == State::closing || was == State::disconnected) return nullptr;
  return id->qp.lock();
}

std::uint32_t forget_in_kernel(const Id& id) {
  std::uint32_t reported = 0;
  if (id.file->kernel() != nullptr) id.file->kernel()->destroy_id(id.number, &reported);
  return reported;
}

namespace {

// Without its parameters.
Event make_event(const IdRef& id, EventType type, int status) {
  Event event;
  event.owner = id;
  event.body.uid = id->uid;
  event.body.id = id->number;
  event.body.event = static_cast<std::uint32_t>(type);
  event.body.status = static_cast<std::uint32_t>(status);
  return event;
}

bool is_known(const Id& id) EWARP_REQUIRES(manager_mutex) {
  return id.uid != 0 && id.state != State::destroyed;
}

}  // namespace

void report(const Lock&, const IdRef& id, EventType type, int status, const rdma_ucm_conn_param* param) {
  log::explain_shortage(-status);
  if (!is_known(*id)) return;
  Event event = make_event(id, type, status);
  if (param != nullptr) event.body.param.conn = *param;
  id->file->post(std::move(event));
}

void report_datagram(const Lock&, const IdRef& id, EventType type, int status, const rdma_ucm_ud_param& param) {
  if (!is_known(*id)) return;
  Event event = make_event(id, type, status);
  event.body.param.ud = param;
  id->file->post(std::move(event));
}

namespace {

// The device that owns a local address. 0, EADDRNOTAVAIL (not ours at all) or ENODEV (no device on that interface).
int device_for(const Address& local, verbs::Device** device) {
  *device = verbs::device_of(*local.get());
  if (*device != nullptr) return 0;
  return llp::is_local(*local.get()) ? ENODEV : EADDRNOTAVAIL;
}

bool has_other_interfaces(const verbs::Device& device) {
  const auto all = verbs::devices();
  return std::any_of(all.begin(), all.end(),
                     [&](const verbs::Device* d) { return d->interface_index() != device.interface_index(); });
}

bool state_is(const IdRef& id, std::initializer_list<State> states) {
  const Lock lock;
  for (const State s : states)
    if (id->state == s) return true;
  return false;
}

struct Route {
  Address source;
  verbs::Device* device = nullptr;
};

// The source address and device towards `to`. 0 or errno; looks at routes and interfaces, so without the lock.
int find_route(const Address& local, const Address& to, Route* route) {
  sockaddr_storage found{};
  const bool chosen = local.family() != 0 && !local.is_any();
  // A group is reached through any device, also where the routes know none.
  const bool by_route = !chosen || !to.is_multicast();
  if (const int error = by_route ? llp::source_for(*to.get(), &found) : 0; error != 0) return error;
  route->source = chosen ? local : Address::from(&found, sizeof(found));
  route->device = verbs::device_of(*route->source.get());
  route->source.set_port(local.family() != 0 ? local.port() : 0);
  return route->device == nullptr ? ENODEV : 0;
}

// Reserves the local port now, so that rdma_get_src_port() tells the truth. Ports may be all taken as local ones while
// connections to other peers are still possible: then the kernel chooses when we connect.
void reserve_port(const SocketOptions& options, Address* source, Socket* socket) {
  SocketOptions exclusive = options;
  exclusive.reuse = false;
  if (open_bound(*source, exclusive, socket) == 0) *source = Address::of_socket(socket->fd());
}

}  // namespace

bool reachable(const IdRef& id, const Address& destination) {
  if (destination.is_any()) return true;  // this host
  Address local;
  {
    const Lock lock;
    local = id->local;
  }
  Route route;
  return find_route(local, destination, &route) == 0;
}

int bind_serialized(const IdRef& id, Address address) {
  if (address.is_link_local() && address.scope() == 0) return EINVAL;
  verbs::Device* device = nullptr;
  if (!address.is_any())
    if (const int error = device_for(address, &device); error != 0) return error;
  // Bound to a loopback address an id has no device yet, as with the unspecified address: libfabric asks so for "any
  // device" and would otherwise offer the loopback's alone. Connections that arrive get theirs.
  if (device != nullptr && device->loopback() && has_other_interfaces(*device)) device = nullptr;
  SocketOptions options;
  {
    const Lock lock;
    options = id->options;
  }
  options.datagram = id->is_datagram();
  Socket socket;
  if (const int error = open_bound(address, options, &socket); error != 0) return error;
  const bool own_port = address.port() != 0;
  address = Address::of_socket(socket.fd());
  const Lock lock;
  if (id->state != State::idle) return EINVAL;
  id->socket = std::move(socket);
  id->local = address;
  id->own_port = own_port;
  id->device = device;
  id->enter(State::bound);
  return 0;
}

int bind(const IdRef& id, const Address& address) {
  const std::lock_guard serial(id->command_mutex);
  if (!state_is(id, {State::idle})) return EINVAL;
  return bind_serialized(id, address);
}

int resolve_address(const IdRef& id, Address source, Address destination) {
  const std::lock_guard serial(id->command_mutex);
  if (!state_is(id, {State::idle, State::bound})) return EINVAL;
  if (source.family() != 0 && source.family() != destination.family()) return EINVAL;
  if (destination.is_any()) {
    // As the kernel does: the unspecified address means this host.
    const std::uint16_t port = destination.port();
    destination = Address::loopback(destination.family());
    destination.set_port(port);
  }
  const bool wants_bind = source.family() != 0 && (!source.is_any() || source.port() != 0);
  if (wants_bind && state_is(id, {State::idle}))
    if (const int error = bind_serialized(id, source); error != 0) return error;

  Address local;
  SocketOptions options;
  bool has_socket;
  {
    const Lock lock;
    local = id->local;
    options = id->options;
    has_socket = static_cast<bool>(id->socket);
  }
  if (local.family() != 0 && local.family() != destination.family()) return EINVAL;
  Route route;
  Socket socket;
  const int error = find_route(local, destination, &route);
  if (error == 0 && !has_socket && !id->is_datagram()) reserve_port(options, &route.source, &socket);

  const Lock lock;
  if (id->state != State::idle && id->state != State::bound) return EINVAL;
  id->remote = destination;
  if (error != 0) {
    log::info("cm: no route to {}: {}", destination.text(), std::strerror(error));
    report(lock, id, EventType::addr_error, -error);
    return 0;
  }
  if (socket) id->socket = std::move(socket);
  id->local = route.source;
  id->device = route.device;
  id->enter(State::address_resolved);
  report(lock, id, EventType::addr_resolved);
  return 0;
}

int resolve_route(const IdRef& id) {
  const std::lock_guard serial(id->command_mutex);
  const Lock lock;
  if (id->state != State::address_resolved) return EINVAL;
  id->enter(State::route_resolved);
  report(lock, id, EventType::route_resolved);
  return 0;
}

int disconnect(const IdRef& id) {
  const std::lock_guard serial(id->command_mutex);
  std::shared_ptr<verbs::QueuePair> qp;
  {
    const Lock lock;
    // The peer was first: its DISCONNECTED event is the only one.
    if (id->state == State::disconnected || id->state == State::closing) return 0;
    // Datagrams know no connection, and the kernel says so too.
    if (id->is_datagram() || (id->state != State::established && id->state != State::accepting)) return EINVAL;
    id->enter(State::closing);
    qp = id->qp.lock();
    if (qp == nullptr) {  // the QP was destroyed before, and its stream with it
      id->enter(State::disconnected);
      report(lock, id, EventType::disconnected);
      return 0;
    }
  }
  end_stream(id, qp, true);
  return 0;
}

namespace {

// IPV6_V6ONLY cannot change on a bound socket: bind another one to the same port.
int rebind(const Lock&, Id& id) EWARP_REQUIRES(manager_mutex) {
  if (!id.socket || id.local.family() != AF_INET6) return 0;
  id.socket.close();
  SocketOptions options = id.options;
  options.datagram = id.is_datagram();
  return open_bound(id.local, options, &id.socket);
}

int set_id_option(const Lock& lock, Id& id, std::uint32_t name, Octets value) EWARP_REQUIRES(manager_mutex) {
  const auto byte = [&] { return std::to_integer<std::uint8_t>(value[0]); };
  const auto flag = [&] {
    int v;
    std::memcpy(&v, value.data(), sizeof(v));
    return v != 0;
  };
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      if (value.size() != 1) return EINVAL;
      id.options.tos = byte();
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
      if (value.size() != sizeof(int)) return EINVAL;
      if (id.state != State::idle && !(flag() && id.state != State::listening)) return EINVAL;
      return 0;  // TCP: as if always set
    case RDMA_OPTION_ID_AFONLY:
      if (value.size() != sizeof(int)) return EINVAL;
      if (id.state != State::idle && id.state != State::bound) return EINVAL;
      id.options.v6_only = flag();
      return rebind(lock, id);
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      return value.size() == 1 ? 0 : EINVAL;  // TCP has its own
    default:
      return ENOSYS;
  }
}

}  // namespace

int set_option(const IdRef& id, std::uint32_t level, std::uint32_t name, std::uint64_t value, std::uint32_t length) {
  const std::lock_guard serial(id->command_mutex);
  if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH) {
    // An explicit path takes the place of RESOLVE_ROUTE; its contents mean nothing on IP.
    if (length == 0 || length % sizeof(ib_path_rec_data) != 0) return EINVAL;
    const Lock lock;
    if (id->state != State::address_resolved) return EINVAL;
    id->enter(State::route_resolved);
    report(lock, id, EventType::route_resolved);
    return 0;
  }
  if (level != RDMA_OPTION_ID) return ENOSYS;
  std::byte copy[sizeof(int)];
  if (length == 0 || length > sizeof(copy)) return name <= RDMA_OPTION_ID_ACK_TIMEOUT ? EINVAL : ENOSYS;
  if (!copy_in(copy, reinterpret_cast<const void*>(value), length)) return EFAULT;
  const Lock lock;
  return set_id_option(lock, *id, name, Octets(copy).first(length));
}

}  // namespace ewarp::cm
