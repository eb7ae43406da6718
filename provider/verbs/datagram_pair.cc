// Creation and the end of queue pairs on UDP ports; receives.
#include "provider/verbs/datagram_pair.h"

#include <cerrno>
#include <mutex>

#include "provider/verbs/engine.h"
#include "provider/verbs/log.h"

namespace ewarp::verbs {

bool DatagramPair::make_receive_queue(const ibv_qp_cap& c) {
  const bool own = srq_ == nullptr;
  return rq_.create(own ? c.max_recv_wr : 1, own ? c.max_recv_sge : srq_->sges(), 0);
}

void DatagramPair::begin(ibv_qp_init_attr& init, std::uint32_t depth, std::uint32_t sges, std::uint32_t inline_octets) {
  settle_in(init, {depth, rq_.depth(), sges, rq_.sges(), inline_octets});
  Engine& e = engine();
  e.enter();
  port_ = DatagramPort::of(number_);
  port_->attach(number_, *this);
  e.leave();
}

void DatagramPair::destroy() {
  if (std::exchange(destroyed_, true)) return;
  Engine& e = engine();
  e.enter();
  e.serve_kicks();  // nobody posts to this QP any more, so it cannot come back to the list
  state_.store(IBV_QPS_RESET, std::memory_order_seq_cst);
  leave_port();
  port_->detach(number_, *this);
  leave_queues();
  e.leave();
  leave_owners();
}

int DatagramPair::attach(int fd, const mpa::StreamParams&, std::shared_ptr<StreamObserver>) {
  engine().close_now(fd);
  return EINVAL;
}

int DatagramPair::post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) {
  int rc = 0;
  {
    const std::lock_guard guard(rq_.lock);
    const bool allowed = state_.load(std::memory_order_relaxed) != IBV_QPS_RESET && srq_ == nullptr;
    rc = put_receives(rq_, allowed, cap_.max_recv_sge, wr, bad);
  }
  // Pairs with publish(): the flusher reads the tail after it set the state; who waits for receives, after it said so.
  if (state_.load(std::memory_order_seq_cst) == IBV_QPS_ERR || awaits_receives_.load(std::memory_order_seq_cst))
    engine().kick(*this);
  return rc;
}

}  // namespace ewarp::verbs
