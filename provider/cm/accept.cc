// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The passive side's answer to a CONNECT_REQUEST.
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
#include "provider/startup/linger.h"
#include "provider/startup/terms.h"
#include "provider/verbs/queue_pair.h"

namespace ewarp::cm {
namespace {

// Between Request and Reply the initiator must be silent. 0, ECONNRESET (it left) or EPROTO (it spoke; RFC 5044
// section 7.1.2).
int check_silence(int fd) {
  std::byte octet;
  const long n = llp::receive_now(fd, MutableOctets(&octet, 1), MSG_PEEK);
  if (n == -EAGAIN) return 0;
  return n > 0 ? EPROTO : ECONNRESET;
}

// A frame of at most 532 octets into an empty send buffer: it fits or the connection is dead.
int send_whole(int fd, Octets frame) {
  const long n = llp::send_now(fd, frame);
  return n == static_cast<long>(frame.size()) ? 0 : ECONNRESET;
}

// As the kernel does, a failed ACCEPT ends the connection; the consumer learns it from the return value alone.
int give_up(const IdRef& id, Socket socket, int error) {
  socket.abort();
  const Lock lock;
  log::info("cm: accepting {} failed: {}", id->remote.text(), std::strerror(error));
  id->uid = 0;
  if (id->state != State::destroyed) fail(lock, id, EventType::connect_error, error);
  return error;
}

}  // namespace

int accept(const IdRef& id, std::uint64_t uid, const rdma_ucm_conn_param& param) {
  if (id->is_datagram()) return sidr_accept(id, uid, param);
  const std::lock_guard serial(id->command_mutex);
  Address remote;
  {
    const Lock lock;
    if (id->state != State::request) return EINVAL;
    remote = id->remote;
  }
  const auto qp = verbs::find_qp(param.qp_num);
  const bool usable = qp != nullptr && qp->type() == IBV_QPT_RC;
  mpa::StartupConfig config;
  if (usable) config = startup_config(*qp, param, remote);

  Socket socket;
  mpa::StreamParams params;
  std::vector<std::byte> reply;
  {
    const Lock lock;
    if (id->state != State::request) return EINVAL;
    socket = std::move(id->socket);
    if (usable) {
      const auto data = std::as_bytes(std::span(param.private_data)).first(param.private_data_len);
      reply = id->responder->accept(verbs::responder_terms(config, *id->responder, socket), data);
      params = id->params = id->responder->params();
      id->qp = qp;
      id->lets_sends_wait = lets_sends_wait(param);
    }
    id->responder.reset();
    // Before any event can arise: events of ids without a uid are dropped.
    id->uid = uid;
    id->enter(State::accepting);
  }
  if (!usable) return give_up(id, std::move(socket), EINVAL);
  int error = check_silence(socket.fd());
  if (error == 0) error = send_whole(socket.fd(), reply);
  if (error != 0) return give_up(id, std::move(socket), error);
  error = attach(id, *qp, socket.release_stream(), params);
  if (error != 0) return give_up(id, Socket(), error);
  bool orphaned;
  {
    const Lock lock;
    orphaned = id->state == State::destroyed;  // the channel was closed meanwhile
  }
  if (orphaned) end_stream(id, qp, false);
  return 0;
}

int reject(const IdRef& id, Octets private_data) {
  if (id->is_datagram()) return sidr_reject(id, private_data);
  const std::lock_guard serial(id->command_mutex);
  const Lock lock;
  if (id->state != State::request) return EINVAL;
  mpa::StartupConfig config;
  config.want_markers = options().markers;
  const std::vector<std::byte> reply = id->responder->reject(config, private_data);
  if (send_whole(id->socket.fd(), reply) == 0) {
    verbs::linger_refused(verbs::reactor(), id->socket.release_stream());
  } else {
    id->socket.close();
  }
  id->responder.reset();
  id->enter(State::failed);
  return 0;
}

}  // namespace ewarp::cm
