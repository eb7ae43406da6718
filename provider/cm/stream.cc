// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the active and the passive side share: the terms of a start-up, the hand-over to the QP, the stream's end.
#include <algorithm>
#include <cerrno>

#include "llp/netif.h"
#include "provider/base/log.h"
#include "provider/base/options.h"
#include "provider/cm/id.h"
#include "provider/startup/terms.h"
#include "provider/verbs/device/device.h"
#include "provider/verbs/queue_pair.h"

namespace ewarp::cm {
namespace {

// Told by the QP, on the reactor's thread, how the stream fares. Holds no reference that would keep the id.
class Observer final : public verbs::StreamObserver {
 public:
  Observer(const IdRef& id, bool lets_sends_wait) : id_(id), lets_sends_wait_(lets_sends_wait) {}
  void on_established() override;
  void on_disconnected() override;
  bool lets_sends_wait() const override { return lets_sends_wait_; }

 private:
  std::weak_ptr<Id> id_;
  const bool lets_sends_wait_;
};

void Observer::on_established() {
  const IdRef id = id_.lock();
  if (id == nullptr) return;
  const Lock lock;
  if (id->state != State::connecting && id->state != State::accepting) return;
  id->enter(State::established);
  const auto param = event_param(id->params.ird, id->params.ord, id->reply_data);
  report(lock, id, EventType::established, 0, &param);
}

void Observer::on_disconnected() {
  const IdRef id = id_.lock();
  if (id == nullptr) return;
  const Lock lock;
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

}  // namespace

mpa::StartupConfig startup_config(verbs::QueuePair& qp, const rdma_ucm_conn_param& param, const Address& peer) {
  std::uint16_t ird_limit = 0, ord_limit = 0;
  qp.get_read_limits(&ird_limit, &ord_limit);
  const Options& o = options();
  mpa::StartupConfig config = verbs::terms(llp::is_local(*peer.get()));
  config.enhanced = o.mpa_revision >= 2;
  config.peer_to_peer = o.peer_to_peer;
  config.preferred = preferred_rtr();
  config.ird = std::min<std::uint16_t>(param.responder_resources, ird_limit);
  config.ord = std::min<std::uint16_t>(param.initiator_depth, ord_limit);
  config.max_ird = ird_limit;
  return config;
}

// InfiniBand's field has three bits, and 7 is without end; the kernel takes what is larger for 7.
bool lets_sends_wait(const rdma_ucm_conn_param& param) {
  return param.rnr_retry_count >= 7;
}

int attach(const IdRef& id, verbs::QueuePair& qp, std::unique_ptr<llp::Stream> stream,
           const mpa::StreamParams& params) {
  std::shared_ptr<Observer> observer;
  {
    const Lock lock;
    id->observer = observer = std::make_shared<Observer>(id, id->lets_sends_wait);
  }
  return qp.attach(std::move(stream), params, observer);
}

void end_stream(const IdRef& id, const std::shared_ptr<verbs::QueuePair>& qp, bool graceful) {
  std::shared_ptr<verbs::StreamObserver> observer;
  {
    const Lock lock;
    observer = id->observer;
  }
  if (qp != nullptr && observer != nullptr) qp->disconnect(graceful, observer.get());
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
