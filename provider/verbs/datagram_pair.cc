// Creation and the end of queue pairs on UDP ports; receives.
#include "provider/verbs/datagram_pair.h"

#include <cerrno>
#include <mutex>

#include "provider/verbs/engine.h"
#include "provider/verbs/log.h"

namespace ewarp::verbs {

int DatagramPair::check_caps(ibv_qp_cap& c, const CompletionQueue* send_cq, const CompletionQueue* recv_cq,
                             const SharedReceiveQueue* srq) {
  if (srq != nullptr) c.max_recv_wr = c.max_recv_sge = 0;
  const bool good = send_cq != nullptr && recv_cq != nullptr && c.max_send_wr <= kMaxQpWr &&
                    c.max_recv_wr <= kMaxQpWr && c.max_send_sge <= kMaxSge && c.max_recv_sge <= kMaxSge &&
                    c.max_inline_data <= kMaxInline;
  return good ? 0 : EINVAL;
}

DatagramPair::DatagramPair(Pd& pd, CompletionQueue* send_cq, CompletionQueue* recv_cq, SharedReceiveQueue* srq,
                           std::uint32_t number, ibv_qp_type type)
    : pd_(pd), send_cq_(send_cq), recv_cq_(recv_cq), srq_(srq), number_(number), type_(type) {}

bool DatagramPair::make_receive_queue(const ibv_qp_cap& c) {
  const bool own = srq_ == nullptr;
  return rq_.create(own ? c.max_recv_wr : 1, own ? c.max_recv_sge : srq_->sges(), 0);
}

void DatagramPair::begin(ibv_qp_init_attr& init, std::uint32_t depth, std::uint32_t sges, std::uint32_t inline_octets) {
  ibv_qp_cap& c = init.cap;
  c.max_send_wr = depth;
  c.max_send_sge = sges;
  c.max_inline_data = inline_octets;
  if (srq_ == nullptr) {
    c.max_recv_wr = rq_.depth();
    c.max_recv_sge = rq_.sges();
  }
  cap_ = c;
  signal_all_ = init.sq_sig_all != 0;
  qp_context_ = init.qp_context;
  pd_.users.fetch_add(1);
  send_cq_->users.fetch_add(1);
  recv_cq_->users.fetch_add(1);
  if (srq_ != nullptr) srq_->users.fetch_add(1);
  slot_ = stats::take_qp_slot();
  if (slot_ != nullptr) {
    slot_->device = context().device().index();
    slot_->type = static_cast<std::uint32_t>(type_);
    slot_->state.store(IBV_QPS_RESET, std::memory_order_relaxed);
    slot_->number.store(number_, std::memory_order_relaxed);
  }
  stats::add(context().device().counters().qps_created);
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
  send_cq_->purge(number_);
  recv_cq_->purge(number_);
  if (slot_ != nullptr) stats::release_qp_slot(std::exchange(slot_, nullptr));
  stats::add(context().device().counters().qps_destroyed);
  e.leave();
  qp_numbers().give(number_);
  pd_.users.fetch_sub(1);
  send_cq_->users.fetch_sub(1);
  recv_cq_->users.fetch_sub(1);
  if (srq_ != nullptr) srq_->users.fetch_sub(1);
}

int DatagramPair::attach(int fd, const mpa::StreamParams&, std::shared_ptr<StreamObserver>) {
  engine().close_now(fd);
  return EINVAL;
}

void DatagramPair::complete(CompletionQueue& cq, ibv_wc& wc, bool solicited) {
  wc.qp_num = number_;
  if (!push_counted(cq, context(), slot_, wc, solicited)) overflowed_ = true;
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
