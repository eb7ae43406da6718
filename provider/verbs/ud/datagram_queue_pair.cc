// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Creation and the end of queue pairs on UDP ports; receives.
#include "provider/verbs/ud/datagram_queue_pair.h"

#include <cerrno>

#include "llp/mutex.h"
#include "provider/base/log.h"
#include "provider/engine/engine.h"

namespace ewarp::verbs {

bool DatagramQueuePair::make_receive_queue(const ibv_qp_cap& c) {
  const bool own = srq_ == nullptr;
  return rq_.create(own ? c.max_recv_wr : 1, own ? c.max_recv_sge : srq_->sges(), 0);
}

void DatagramQueuePair::begin(ibv_qp_init_attr& init, std::uint32_t depth, std::uint32_t sges,
                              std::uint32_t inline_octets) {
  settle_in(init, {depth, rq_.depth(), sges, rq_.sges(), inline_octets});
  DatagramPort::look_at_interfaces();
  Engine& e = engine();
  e.run([&] {
    auto port = DatagramPort::of(e, number_);
    port->attach(number_, *this, context().device());
    port_ = std::move(port);
  });
}

void DatagramQueuePair::destroy() {
  if (std::exchange(destroyed_, true)) return;
  Engine& e = engine();
  e.run([&] {
    e.assert_held();
    e.serve_kicks();  // nobody posts to this QP any more, so it cannot come back to the list
    state_.store(IBV_QPS_RESET, std::memory_order_seq_cst);
    if (port_ != nullptr) {  // begin() has done its work
      leave_port();
      port_->detach(number_, *this);
    }
    leave_queues();
  });
  leave_owners();
}

int DatagramQueuePair::attach(std::unique_ptr<llp::Stream>, const mpa::StreamParams&, std::shared_ptr<StreamObserver>) {
  return EINVAL;
}

int DatagramQueuePair::post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) {
  int rc = 0;
  {
    const llp::Guard guard(rq_.lock);
    const bool allowed = state_.load(std::memory_order_relaxed) != IBV_QPS_RESET && srq_ == nullptr;
    rc = put_receives(rq_, allowed, cap_.max_recv_sge, wr, bad);
  }
  // Pairs with publish(): the flusher reads the tail after it set the state; who waits for receives, after it said so.
  if (state_.load(std::memory_order_seq_cst) == IBV_QPS_ERR || awaits_receives_.load(std::memory_order_seq_cst))
    engine().kick(*this);
  return rc;
}

}  // namespace ewarp::verbs
