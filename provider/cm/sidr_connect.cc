// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The active side of SIDR: asks a service for its QP number and Q_Key.
#include <poll.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "provider/base/log.h"
#include "provider/cm/datagram.h"
#include "provider/verbs/device/device.h"
#include "provider/verbs/queue_pair.h"

namespace ewarp::cm {
namespace {

using verbs::reactor;
using verbs::Reactor;
using AttemptRef = std::shared_ptr<SidrAttempt>;

constexpr auto kRetry = std::chrono::milliseconds(500);
constexpr unsigned kTries = 8;

std::uint32_t random_transaction() {
  std::uint32_t n = 0;
  if (getrandom(&n, sizeof n, GRND_NONBLOCK) != sizeof n)
    n = static_cast<std::uint32_t>(Reactor::Clock::now().time_since_epoch().count());
  return n;
}

void send_request(const Lock& lock, const IdRef& id, const AttemptRef& attempt) EWARP_REQUIRES(manager_mutex) {
  if (attempt->sent == kTries) {
    log::info("cm: no answer from {}", id->remote.text());
    cancel_sidr(lock, *id);
    fail(lock, id, EventType::unreachable, ETIMEDOUT);
    return;
  }
  ++attempt->sent;
  send_datagram(lock, attempt->socket, attempt->to, attempt->request);
  attempt->timer = reactor().add_timer(Reactor::Clock::now() + kRetry, [weak = std::weak_ptr(id), attempt] {
    const IdRef alive = weak.lock();
    if (alive == nullptr) return;
    const Lock held;
    if (!attempt->done) send_request(held, alive, attempt);
  });
}

void on_reply(const Lock& lock, const IdRef& id, const AttemptRef& attempt, const llp::SidrReply& reply,
              Octets private_data) EWARP_REQUIRES(manager_mutex) {
  const auto param =
      ud_param(id->remote.gid(), attempt->gid_index, id->options.tos.value_or(0), reply.qpn, reply.qkey, private_data);
  cancel_sidr(lock, *id);
  if (reply.status == static_cast<std::uint8_t>(llp::SidrStatus::success)) {
    id->enter(State::established);
    report_datagram(lock, id, EventType::established, 0, param);
    return;
  }
  // As the kernel reports it, the status as it came.
  log::info("cm: {} refuses: SIDR status {}", id->remote.text(), reply.status);
  if (id->device != nullptr) stats::add(id->device->counters().connect_failures);
  id->enter(State::failed);
  report_datagram(lock, id, EventType::unreachable, reply.status, param);
}

void await_reply(const IdRef& id, const AttemptRef& attempt) {
  reactor().watch(attempt->socket.fd(), POLLIN, [weak = std::weak_ptr(id), attempt](std::uint32_t) {
    const IdRef alive = weak.lock();
    if (alive == nullptr) return;
    const Lock lock;
    if (attempt->done) return;
    receive_datagrams(lock, attempt->socket,
                      [&](const llp::UdpArrival& a, const llp::Datagram& d) EWARP_REQUIRES(manager_mutex) {
                        const bool from_peer =
                            std::memcmp(&a.from.sin6_addr, &attempt->to.to.sin6_addr, sizeof a.from.sin6_addr) == 0;
                        if (attempt->done || !from_peer || d.prefix.type != llp::DatagramType::sidr_reply) return;
                        const auto reply = llp::SidrReply::parse(d);
                        if (reply.transaction == attempt->transaction) on_reply(lock, alive, attempt, reply, d.segment);
                      });
    if (!attempt->done) await_reply(alive, attempt);
  });
}

// The id's own socket, or a fresh one on its address.
int open_socket(const IdRef& id, Socket* socket) {
  Address local;
  SocketOptions options;
  {
    const Lock lock;
    *socket = std::move(id->socket);
    local = id->local;
    options = id->options;
  }
  if (*socket) return 0;
  options.datagram = true;
  return open_bound(local, options, socket);
}

}  // namespace

int sidr_connect(const IdRef& id, const rdma_ucm_conn_param& param) {
  const std::lock_guard serial(id->command_mutex);
  Address local, remote;
  const verbs::Device* device;
  {
    const Lock lock;
    if (id->state != State::route_resolved || param.valid == 0 || id->device == nullptr) return EINVAL;
    local = id->local;
    remote = id->remote;
    device = id->device;
  }
  auto attempt = std::make_shared<SidrAttempt>();
  if (const int error = open_socket(id, &attempt->socket); error != 0) return error;
  if (const int error = llp::prepare_udp_socket(handle_of(attempt->socket)); error != 0) return error;
  attempt->gid_index = gid_index_of(*device, local);
  attempt->to.to = mapped(remote);
  attempt->to.source = mapped(local).sin6_addr;
  attempt->transaction = random_transaction();
  const auto data = std::as_bytes(std::span(param.private_data)).first(param.private_data_len);
  const std::size_t padding = llp::SidrRequest::padding(data.size());
  attempt->request.resize(llp::SidrRequest::kHeader + 4 * padding + llp::kSegmentLength + data.size() +
                          llp::kDatagramCrc);
  const llp::SidrRequest request{attempt->transaction, remote.port()};
  llp::finish_datagram(attempt->request, request.emit(attempt->request, param.qp_num, padding), data);

  const Lock lock;
  if (id->state != State::route_resolved) return EINVAL;
  id->local = Address::of_socket(attempt->socket.fd());
  id->sidr_attempt = attempt;
  id->enter(State::connecting);
  await_reply(id, attempt);
  send_request(lock, id, attempt);
  return 0;
}

void cancel_sidr(const Lock&, Id& id) {
  const AttemptRef attempt = std::move(id.sidr_attempt);
  if (attempt == nullptr) return;
  attempt->done = true;
  reactor().cancel_timer(attempt->timer);
  // The socket keeps the local port for the id, and is not watched any more.
  reactor().unwatch(attempt->socket.fd());
  id.socket = std::move(attempt->socket);
}

}  // namespace ewarp::cm
