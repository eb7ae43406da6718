// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The passive side of SIDR: requests to a service port become CONNECT_REQUESTs, answers go back where they came from.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "llp/random_key.h"
#include "llp/source_limit.h"
#include "provider/base/log.h"
#include "provider/cm/datagram.h"
#include "provider/verbs/device/device.h"

namespace ewarp::cm {
namespace {

using verbs::reactor;
using verbs::Reactor;

constexpr std::size_t kMaxRemembered = 4096;

Address address_of(const in6_addr& a, std::uint16_t port, unsigned interface) {
  sockaddr_in6 s{};
  s.sin6_family = AF_INET6;
  s.sin6_addr = a;
  s.sin6_port = htons(port);
  if (IN6_IS_ADDR_LINKLOCAL(&a)) s.sin6_scope_id = interface;
  return Address::from(&s, sizeof s).unmapped();
}

// Who asks, and for the how manieth time does not matter.
std::string key_of(const llp::UdpArrival& a, std::uint32_t transaction) {
  std::string key(reinterpret_cast<const char*>(&a.from.sin6_addr), sizeof a.from.sin6_addr);
  key.append(reinterpret_cast<const char*>(&a.from.sin6_port), sizeof a.from.sin6_port);
  return key.append(reinterpret_cast<const char*>(&transaction), sizeof transaction);
}

// Replies beyond what may_answer() lets out by itself, all listeners of the process together.
constexpr unsigned kRepliesPerSource = 10, kRepliesInAll = 100;  // in a second

llp::SourceLimit& reply_limit() EWARP_REQUIRES(manager_mutex) {
  static llp::SourceLimit limit(llp::random_key(), kRepliesPerSource, kRepliesInAll);
  return limit;
}

// A source address may be forged: the first reply is at most three times as long as what asked for it, as RFC 9000
// section 8.1 has it. What is longer, and what is repeated, is sent seldom.
bool may_answer(const SidrArrival& arrival) EWARP_REQUIRES(manager_mutex) {
  constexpr std::size_t kMostTimes = 3;
  if (!arrival.answered && arrival.reply.size() <= kMostTimes * arrival.asked) return true;
  const std::chrono::nanoseconds now = Reactor::Clock::now().time_since_epoch();
  return reply_limit().allow(llp::octets_of(arrival.back.to.sin6_addr), static_cast<std::uint64_t>(now.count()));
}

// Through the listener's socket, or where that is gone from one of its own.
void send_reply(const Lock& lock, const Id& id) EWARP_REQUIRES(manager_mutex) {
  SidrArrival& arrival = *id.sidr_arrival;
  if (!may_answer(arrival)) return log::debug("cm: too many replies to {}", id.remote.text());
  arrival.answered = true;
  const IdRef listener = arrival.listener.lock();
  if (listener != nullptr && listener->socket) {
    send_datagram(lock, listener->socket, arrival.back, arrival.reply);
    return;
  }
  Socket socket;
  SocketOptions options;
  options.datagram = true;
  Address local = id.local;
  local.set_port(0);
  if (open_bound(local, options, &socket) == 0) send_datagram(lock, socket, arrival.back, arrival.reply);
}

void make_reply(SidrArrival& arrival, llp::SidrStatus status, std::uint32_t qpn, std::uint32_t qkey,
                Octets private_data) {
  arrival.reply.resize(llp::SidrReply::kHeader + llp::kSegmentLength + private_data.size() + llp::kDatagramCrc);
  const llp::SidrReply reply{arrival.transaction, static_cast<std::uint8_t>(status), qpn, qkey};
  llp::finish_datagram(arrival.reply, reply.emit(arrival.reply, arrival.source_qpn, qpn), private_data);
}

// True: it is a request that is known, and answered if it has an answer.
bool is_repeated(const Lock& lock, Listener& l, const std::string& key) EWARP_REQUIRES(manager_mutex) {
  const auto found = l.sidr.find(key);
  if (found == l.sidr.end()) return false;
  const IdRef id = found->second.lock();
  if (id == nullptr || id->state == State::destroyed) {
    l.sidr.erase(found);
    return false;
  }
  if (!id->sidr_arrival->reply.empty()) send_reply(lock, *id);
  return true;
}

// A request for this service that is not known yet, while there is room for it; else it asks again.
bool is_news(const Lock& lock, const Id& id, const llp::UdpArrival& a, const llp::Datagram& d)
    EWARP_REQUIRES(manager_mutex) {
  if (d.prefix.type != llp::DatagramType::sidr_request || d.segment.size() > RDMA_MAX_PRIVATE_DATA) return false;
  Listener& l = *id.listener;
  const auto request = llp::SidrRequest::parse(d);
  return request.service_port == id.local.port() && !is_repeated(lock, l, key_of(a, request.transaction)) &&
         l.queued < l.backlog;
}

void announce(const Lock& lock, const IdRef& id, const llp::UdpArrival& a, const llp::Datagram& d,
              verbs::Device* device) EWARP_REQUIRES(manager_mutex) {
  if (!is_news(lock, *id, a, d)) return;  // any more
  Listener& l = *id->listener;
  const auto request = llp::SidrRequest::parse(d);
  std::erase_if(l.sidr, [](const auto& entry) { return entry.second.expired(); });
  IdRef fresh;
  if (l.sidr.size() >= kMaxRemembered || new_id(lock, id->file, 0, id->port_space, id->qp_type, &fresh) != 0) return;
  fresh->local = address_of(a.to, id->local.port(), a.interface);
  fresh->remote = Address::from(&a.from, sizeof a.from).unmapped();
  fresh->device = device;
  fresh->options = id->options;
  fresh->sidr_arrival = std::make_shared<SidrArrival>();
  SidrArrival& arrival = *fresh->sidr_arrival;
  arrival.listener = id;
  arrival.back.to = a.from;
  arrival.back.source = a.to;
  if (IN6_IS_ADDR_LINKLOCAL(&a.from.sin6_addr) || IN6_IS_ADDR_LINKLOCAL(&a.to)) arrival.back.interface = a.interface;
  arrival.transaction = request.transaction;
  arrival.asked = a.payload.size();
  arrival.source_qpn = d.prefix.source;
  fresh->enter(State::request);
  fresh->unheard_of = true;
  l.sidr[key_of(a, request.transaction)] = fresh;
  Event event;
  event.owner = id;
  event.request = fresh;
  event.body.uid = id->uid;
  event.body.id = fresh->number;
  event.body.event = static_cast<std::uint32_t>(EventType::connect_request);
  event.body.param.ud = ud_param({}, 0, 0, 0, 0, d.segment);
  ++l.queued;
  id->file->post(std::move(event));
}

void on_requests(const std::weak_ptr<Id>& weak);

void watch(const IdRef& id) {
  reactor().watch(id->socket.fd(), POLLIN, [weak = std::weak_ptr(id)](std::uint32_t) { on_requests(weak); });
}

struct Request {
  llp::UdpArrival arrival;
  std::vector<std::byte> octets;
  verbs::Device* device = nullptr;
};

// Asks the kernel for all interfaces: once for each address.
void find_devices(std::vector<Request>& requests) {
  for (auto r = requests.begin(); r != requests.end(); ++r) {
    const auto same = std::find_if(requests.begin(), r, [&](const Request& other) {
      return IN6_ARE_ADDR_EQUAL(&other.arrival.to, &r->arrival.to) && other.arrival.interface == r->arrival.interface;
    });
    r->device = same != r ? same->device : verbs::device_of(*address_of(r->arrival.to, 0, r->arrival.interface).get());
  }
}

// Devices are looked for without the lock, and only for what is worth it: anybody may send here. What arrived is kept
// meanwhile.
void on_requests(const std::weak_ptr<Id>& weak) {
  const IdRef id = weak.lock();
  if (id == nullptr) return;
  std::vector<Request> requests;
  Lock lock;
  if (id->listener == nullptr) return;
  receive_datagrams(lock, id->socket,
                    [&](const llp::UdpArrival& a, const llp::Datagram& d) EWARP_REQUIRES(manager_mutex) {
                      if (is_news(lock, *id, a, d)) requests.push_back({a, {a.payload.begin(), a.payload.end()}});
                    });
  if (!requests.empty()) {
    lock.unlock();
    find_devices(requests);
    lock.lock();
    if (id->listener == nullptr) return;
  }
  for (const Request& r : requests)
    if (r.device != nullptr) announce(lock, id, r.arrival, llp::parse_datagram(r.octets, true).value(), r.device);
  watch(id);
}

int check_request(const IdRef& id) EWARP_REQUIRES(manager_mutex) {
  return id->state == State::request && id->sidr_arrival != nullptr ? 0 : EINVAL;
}

}  // namespace

int sidr_listen(const IdRef& id, std::uint32_t backlog) {
  const std::lock_guard serial(id->command_mutex);
  bool idle;
  {
    const Lock lock;
    idle = id->state == State::idle;
  }
  if (idle)
    if (const int error = bind_serialized(id, Address::any(AF_INET)); error != 0) return error;
  const Lock lock;
  if (id->state != State::bound || !id->socket) return EINVAL;
  if (const int error = llp::prepare_udp_socket(handle_of(id->socket)); error != 0) return error;
  id->listener = std::make_unique<Listener>();
  id->listener->backlog = backlog_of(backlog);
  id->enter(State::listening);
  watch(id);
  return 0;
}

int sidr_accept(const IdRef& id, std::uint64_t uid, const rdma_ucm_conn_param& param) {
  const std::lock_guard serial(id->command_mutex);
  const Lock lock;
  if (const int error = check_request(id); error != 0) return error;
  const auto data = std::as_bytes(std::span(param.private_data)).first(param.private_data_len);
  make_reply(*id->sidr_arrival, llp::SidrStatus::success, param.qp_num, param.qkey != 0 ? param.qkey : kUdpQkey, data);
  id->uid = uid;
  // No event on this side: there is no connection that could come to be.
  id->enter(State::established);
  send_reply(lock, *id);
  return 0;
}

int sidr_reject(const IdRef& id, Octets private_data) {
  const std::lock_guard serial(id->command_mutex);
  const Lock lock;
  if (const int error = check_request(id); error != 0) return error;
  make_reply(*id->sidr_arrival, llp::SidrStatus::rejected, 0, 0, private_data);
  id->enter(State::failed);
  send_reply(lock, *id);
  return 0;
}

}  // namespace ewarp::cm
