// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The active side: TCP connection, MPA Request and Reply (RFC 5044 section 7.1.2, RFC 6581 sections 9 and 10).
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "llp/netif.h"
#include "llp/tcp.h"
#include "provider/base/log.h"
#include "provider/base/options.h"
#include "provider/cm/datagram.h"
#include "provider/cm/id.h"
#include "provider/engine/reactor.h"
#include "provider/verbs/queue_pair.h"

namespace ewarp::cm {
namespace {

using verbs::reactor;
using verbs::Reactor;
using AttemptRef = std::shared_ptr<Attempt>;
using Handler = void (*)(Lock&, const IdRef&, const AttemptRef&);

// Runs `handler` with the manager's lock when the socket is ready, unless the attempt has ended by then.
void when_ready(const IdRef& id, const AttemptRef& attempt, std::uint32_t events, Handler handler) {
  reactor().watch(attempt->socket.fd(), events, [weak = std::weak_ptr(id), attempt, handler](std::uint32_t) {
    const IdRef alive = weak.lock();
    if (alive == nullptr) return;
    Lock lock;
    if (!attempt->done) handler(lock, alive, attempt);
  });
}

// The kernel's classes (cma_iw_handler), and the two ways in which a host says that it cannot be reached.
EventType event_of(int error) {
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
      return EventType::rejected;
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return EventType::unreachable;
    default:
      return EventType::connect_error;
  }
}

void give_up(const Lock& lock, const IdRef& id, int error, const char* why) EWARP_REQUIRES(manager_mutex) {
  log::info("cm: connection {} -> {} failed: {} ({})", id->local.text(), id->remote.text(), why, std::strerror(error));
  cancel_attempt(lock, *id);
  fail(lock, id, event_of(error), error);
}

// What the attempt waits for now has this long; what limited its step before does so no longer.
void limit_wait(const Lock&, const IdRef& id, const AttemptRef& attempt, unsigned limit_ms, const char* why)
    EWARP_REQUIRES(manager_mutex) {
  reactor().cancel_timer(attempt->timer);
  const auto limit = Reactor::Clock::now() + std::chrono::milliseconds(limit_ms);
  attempt->timer = reactor().add_timer(limit, [weak = std::weak_ptr(id), attempt, why] {
    const IdRef alive = weak.lock();
    if (alive == nullptr) return;
    const Lock lock;
    if (!attempt->done) give_up(lock, alive, ETIMEDOUT, why);
  });
}

// Two limits: TCP's connection is the kernels' work, and quick; the Reply is the server's program's, which may prepare
// gigabytes of memory first.
void await_connection(const Lock& lock, const IdRef& id, const AttemptRef& attempt) EWARP_REQUIRES(manager_mutex) {
  limit_wait(lock, id, attempt, options().connect_timeout_ms, "no TCP connection");
}
void await_reply(const Lock& lock, const IdRef& id, const AttemptRef& attempt) EWARP_REQUIRES(manager_mutex) {
  limit_wait(lock, id, attempt, options().reply_timeout_ms, "no MPA Reply");
}

void on_connected(Lock& lock, const IdRef& id, const AttemptRef& attempt) EWARP_REQUIRES(manager_mutex);
void open_connection(const IdRef& id, const AttemptRef& attempt);

// Servers tell their port before they listen (qperf), or close one listener and open the next on the same port
// (perftest): a client that was asked to come just then shall not fail. True: it is tried again.
bool retry_refused(const Lock&, const IdRef& id, const AttemptRef& attempt, int error) EWARP_REQUIRES(manager_mutex) {
  constexpr std::chrono::milliseconds kPause{10};
  const auto now = Reactor::Clock::now();
  if (error != ECONNREFUSED || now >= attempt->refused_limit) return false;
  attempt->socket.abort();  // frees the local port at once
  reactor().add_timer(now + kPause, [weak = std::weak_ptr(id), attempt] {
    if (const IdRef alive = weak.lock()) open_connection(alive, attempt);
  });
  return true;
}

// Opens the connection; without the lock. The first try uses the socket that reserved the local port.
void open_connection(const IdRef& id, const AttemptRef& attempt) {
  Address local, remote;
  SocketOptions options;
  Socket socket;
  {
    const Lock lock;
    if (attempt->done) return;
    socket = std::move(attempt->socket);
    local = id->local;
    remote = id->remote;
    options = id->options;
    if (!id->own_port) local.set_port(0);
  }
  int error = 0;
  if (!socket) {
    options.late_port = local.port() == 0;
    error = open_bound(local, options, &socket);
  }
  if (error == 0) {
    tune_stream(socket.fd(), remote, llp::is_local(*remote.get()), options.tos);
    if (::connect(socket.fd(), remote.get(), remote.size()) != 0 && errno != EINPROGRESS) error = errno;
  }
  const Lock lock;
  if (attempt->done) return;
  attempt->socket = std::move(socket);
  if (error != 0 && retry_refused(lock, id, attempt, error)) return;
  if (error != 0) return give_up(lock, id, error, "cannot connect");
  when_ready(id, attempt, POLLOUT, on_connected);
}

// A responder that knows only RFC 5044 closes on an enhanced Request: try once more without (RFC 6581 section 10).
void retry_plain(const Lock& lock, const IdRef& id, const AttemptRef& attempt) EWARP_REQUIRES(manager_mutex) {
  log::info("cm: {} closed on an MPA revision 2 Request; trying revision 1", id->remote.text());
  attempt->enhanced = false;
  attempt->sent = 0;
  attempt->initiator.reset();
  attempt->socket.abort();  // frees the local port at once
  await_connection(lock, id, attempt);
  reactor().post([weak = std::weak_ptr(id), attempt] {
    if (const IdRef alive = weak.lock()) open_connection(alive, attempt);
  });
}

void peer_closed(const Lock& lock, const IdRef& id, const AttemptRef& attempt) EWARP_REQUIRES(manager_mutex) {
  if (attempt->enhanced && !attempt->heard) return retry_plain(lock, id, attempt);
  give_up(lock, id, ECONNRESET, "the peer closed during MPA start-up");
}

// The QP takes over. The observer's on_established() reports. The caller's lock is given back.
void hand_over(Lock& lock, const IdRef& id, const AttemptRef& attempt)
    EWARP_REQUIRES(manager_mutex) EWARP_NO_LOCK_ANALYSIS {
  const mpa::StreamParams params = attempt->initiator->params();
  const Octets data = attempt->initiator->private_data();
  id->params = params;
  id->reply_data.assign(data.begin(), data.end());
  if (params.local) attempt->socket.connect_locally();
  auto stream = attempt->socket.release_stream();
  cancel_attempt(lock, *id);
  const auto qp = id->qp.lock();
  // The QP sends the Terminate; for the consumer the connection never came to be.
  if (params.terminate)
    fail(lock, id, EventType::connect_error, *params.terminate == fault::kMpaInsufficientIrd ? ENOMEM : EPROTO);
  lock.unlock();

  int error = ENOTCONN;
  if (qp != nullptr) error = attach(id, *qp, std::move(stream), params);
  lock.lock();
  if (error != 0 && id->state == State::connecting) {
    log::info("cm: the QP of id {} does not take the connection: {}", id->number, std::strerror(error));
    fail(lock, id, EventType::connect_error, error);
  }
  const bool orphaned = id->state == State::destroyed;
  lock.unlock();
  if (error == 0 && orphaned) end_stream(id, qp, false);
}

void rejected(const Lock& lock, const IdRef& id, const AttemptRef& attempt) EWARP_REQUIRES(manager_mutex) {
  const mpa::StreamParams& params = attempt->initiator->params();
  const auto param = event_param(params.peer_ord, params.peer_ird, attempt->initiator->private_data());
  log::info("cm: connection {} -> {} rejected by the peer", id->local.text(), id->remote.text());
  cancel_attempt(lock, *id);
  fail(lock, id, EventType::rejected, ECONNRESET, &param);
}

// hand_over() gives the lock back: nothing may follow it here.
void on_reply(Lock& lock, const IdRef& id, const AttemptRef& attempt) EWARP_REQUIRES(manager_mutex) {
  std::byte buffer[mpa::kStartupHeader + mpa::kMaxPrivateData];
  while (true) {
    // Never beyond the frame: what follows is the QP's.
    const auto want = std::min(attempt->initiator->want(), sizeof(buffer));
    const long n = llp::receive_now(attempt->socket.fd(), MutableOctets(buffer).first(want));
    if (n == -EAGAIN || n == -EINTR) return when_ready(id, attempt, POLLIN, on_reply);
    if (n == 0 || n == -ECONNRESET || n == -EPIPE) return peer_closed(lock, id, attempt);
    if (n < 0) return give_up(lock, id, static_cast<int>(-n), "receiving the MPA Reply");
    attempt->heard = true;
    switch (attempt->initiator->feed(Octets(buffer).first(static_cast<std::size_t>(n)))) {
      case mpa::Initiator::Outcome::more:
        break;
      case mpa::Initiator::Outcome::accepted:
        return hand_over(lock, id, attempt);
      case mpa::Initiator::Outcome::rejected:
        return rejected(lock, id, attempt);
      case mpa::Initiator::Outcome::failed:
        log::info("cm: bad MPA Reply from {}: {}", id->remote.text(), attempt->initiator->why());
        return give_up(lock, id, EPROTO, "bad MPA Reply");
    }
  }
}

void on_connected(Lock& lock, const IdRef& id, const AttemptRef& attempt) EWARP_REQUIRES(manager_mutex) {
  int error = llp::take_error(attempt->socket.fd());
  // Once connected, a reset is the peer's answer to the Request.
  if (error != 0 && attempt->initiator) return peer_closed(lock, id, attempt);
  if (error == 0 && llp::connected_to_itself(attempt->socket.fd())) {
    attempt->socket.abort();
    error = ECONNREFUSED;
  }
  if (error != 0 && retry_refused(lock, id, attempt, error)) return;
  if (error != 0) return give_up(lock, id, error, "TCP");
  if (!attempt->initiator) {
    mpa::StartupConfig config = attempt->config;
    config.enhanced = attempt->enhanced;
    attempt->initiator.emplace(config, attempt->private_data);
    id->local.set_port(Address::of_socket(attempt->socket.fd()).port());
    await_reply(lock, id, attempt);
  }
  const Octets request = attempt->initiator->request();
  while (attempt->sent < request.size()) {
    const long n = llp::send_now(attempt->socket.fd(), request.subspan(attempt->sent));
    if (n == -EAGAIN || n == -EINTR) return when_ready(id, attempt, POLLOUT, on_connected);
    if (n < 0) return peer_closed(lock, id, attempt);
    attempt->sent += static_cast<std::size_t>(n);
  }
  when_ready(id, attempt, POLLIN, on_reply);
}

}  // namespace

int connect(const IdRef& id, const rdma_ucm_conn_param& param) {
  if (const int error = reactor().start(); error != 0) return error;
  if (id->is_datagram()) return sidr_connect(id, param);
  const std::lock_guard serial(id->command_mutex);
  Address remote;
  {
    const Lock lock;
    if (id->state != State::route_resolved || param.valid == 0) return EINVAL;
    remote = id->remote;
  }
  const auto qp = verbs::find_qp(param.qp_num);
  if (qp == nullptr || qp->type() != IBV_QPT_RC) return EINVAL;

  auto attempt = std::make_shared<Attempt>();
  attempt->config = startup_config(*qp, param, remote);
  attempt->enhanced = attempt->config.enhanced;
  const auto data = std::as_bytes(std::span(param.private_data)).first(param.private_data_len);
  attempt->private_data.assign(data.begin(), data.end());
  {
    const Lock lock;
    if (id->state != State::route_resolved) return EINVAL;
    attempt->socket = std::move(id->socket);
    id->attempt = attempt;
    id->qp = qp;
    id->lets_sends_wait = lets_sends_wait(param);
    id->enter(State::connecting);
    attempt->refused_limit = Reactor::Clock::now() + std::chrono::milliseconds(options().refused_wait_ms);
    await_connection(lock, id, attempt);
  }
  open_connection(id, attempt);
  return 0;
}

void cancel_attempt(const Lock&, Id& id) {
  const AttemptRef attempt = std::move(id.attempt);
  if (attempt == nullptr) return;
  attempt->done = true;
  reactor().cancel_timer(attempt->timer);
  attempt->socket.close();
}

}  // namespace ewarp::cm
