// What the active and the passive side share: the terms of a start-up, the hand-over to the QP, the stream's end.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "llp/netif.h"
#include "llp/tcp.h"
#include "provider/cm/id.h"
#include "provider/verbs/device.h"
#include "provider/verbs/log.h"
#include "provider/verbs/options.h"
#include "provider/verbs/queue_pair_api.h"
#include "provider/verbs/reactor.h"

namespace ewarp::cm {
namespace {

using verbs::reactor;
using verbs::Reactor;

// Told by the QP, on the reactor's thread, how the stream fares. Holds no reference that would keep the id.
class Observer final : public verbs::StreamObserver {
 public:
  explicit Observer(const IdRef& id) : id_(id) {}
  void on_established() override;
  void on_disconnected() override;

 private:
  std::weak_ptr<Id> id_;
};

void Observer::on_established() {
  const IdRef id = id_.lock();
  if (id == nullptr) return;
  const auto lock = lock_manager();
  if (id->state != State::connecting && id->state != State::accepting) return;
  id->enter(State::established);
  const auto param = event_param(id->params.ird, id->params.ord, id->reply_data);
  report(lock, id, EventType::established, 0, &param);
}

void Observer::on_disconnected() {
  const IdRef id = id_.lock();
  if (id == nullptr) return;
  const auto lock = lock_manager();
  switch (id->state) {
    case State::connecting:
    case State::accepting:  // before the first FPDU: for the consumer there never was a connection
      fail(lock, id, EventType::connect_error, ECONNRESET);
      return;
    case State::established:
    case State::closing:
      id->enter(State::disconnected);
      report(lock, id, EventType::disconnected);
      return;
    default:
      return;
  }
}

std::uint8_t preferred_rtr() {
  const std::string& first = options().rtr;
  if (first == "read") return mpa::kRtrRead;
  if (first == "send") return mpa::kRtrSend;
  return mpa::kRtrWrite;
}

void drain(const std::shared_ptr<Lingering>& lingering) {
  const auto lock = lock_manager();
  if (!lingering->socket) return;
  std::byte scrap[4096];
  long n;
  do {
    n = llp::receive_now(lingering->socket.fd(), scrap);
  } while (n > 0);
  if (n == -EAGAIN) {
    reactor().watch(lingering->socket.fd(), POLLIN, [lingering](std::uint32_t) { drain(lingering); });
    return;
  }
  reactor().cancel_timer(lingering->timer);
  lingering->socket.close();
  manager().lingering.erase(lingering);
}

}  // namespace

mpa::StartupConfig startup_config(verbs::QueuePair& qp, const rdma_ucm_conn_param& param, const Address& peer) {
  std::uint16_t ird_limit = 0, ord_limit = 0;
  verbs::api(qp).get_read_limits(&ird_limit, &ord_limit);
  const Options& o = options();
  mpa::StartupConfig config;
  config.enhanced = o.mpa_revision >= 2;
  config.want_crc = o.crc == CrcPolicy::always || (o.crc == CrcPolicy::by_path && !llp::is_local(*peer.get()));
  config.want_markers = o.markers;
  config.peer_to_peer = o.peer_to_peer;
  config.preferred = preferred_rtr();
  config.extensions = o.extensions;
  config.ird = std::min<std::uint16_t>(param.responder_resources, ird_limit);
  config.ord = std::min<std::uint16_t>(param.initiator_depth, ord_limit);
  config.max_ird = ird_limit;
  return config;
}

int attach(const IdRef& id, verbs::QueuePair& qp, int fd, const mpa::StreamParams& params) {
  return verbs::api(qp).attach(fd, params, std::make_shared<Observer>(id));
}

void abort_stream(const std::shared_ptr<verbs::QueuePair>& qp) {
  if (qp != nullptr) verbs::api(*qp).disconnect(false);
}

void close_gently(const Lock&, Socket socket) {
  if (!socket) return;
  ::shutdown(socket.fd(), SHUT_WR);
  auto lingering = std::make_shared<Lingering>();
  lingering->socket = std::move(socket);
  manager().lingering.insert(lingering);
  const auto limit = Reactor::Clock::now() + std::chrono::milliseconds(options().close_timeout_ms);
  lingering->timer = reactor().add_timer(limit, [lingering] {
    const auto lock = lock_manager();
    lingering->socket.close();
    manager().lingering.erase(lingering);
  });
  reactor().watch(lingering->socket.fd(), POLLIN, [lingering](std::uint32_t) { drain(lingering); });
}

void fail(const Lock& lock, const IdRef& id, EventType type, int status, const rdma_ucm_conn_param* param) {
  // Connections and their ends are counted by the QPs.
  if (id->device != nullptr) stats::add(id->device->counters().connect_failures);
  id->qp.reset();  // the consumer may connect it again, by another id
  id->enter(State::failed);
  report(lock, id, type, -status, param);
}

rdma_ucm_conn_param event_param(unsigned responder_resources, unsigned initiator_depth, Octets private_data) {
  rdma_ucm_conn_param param{};
  // An 8-bit length: MPA allows 512 octets, the consumer sees the first 255.
  const std::size_t length = std::min<std::size_t>(private_data.size(), 255);
  std::copy_n(reinterpret_cast<const std::uint8_t*>(private_data.data()), length, param.private_data);
  param.private_data_len = static_cast<std::uint8_t>(length);
  param.responder_resources = static_cast<std::uint8_t>(std::min(responder_resources, 255U));
  param.initiator_depth = static_cast<std::uint8_t>(std::min(initiator_depth, 255U));
  return param;
}

}  // namespace ewarp::cm
