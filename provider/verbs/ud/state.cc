// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The states of queue pairs on UDP ports: those of UD in ibv_modify_qp(3).
#include <cerrno>

#include "llp/mutex.h"
#include "provider/base/log.h"
#include "provider/engine/engine.h"
#include "provider/verbs/ud/datagram_queue_pair.h"

namespace ewarp::verbs {
namespace {

// The attributes beside STATE.
struct Transition {
  ibv_qp_state from, to;
  int required, optional;
};
constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr int kRunning = IBV_QP_CUR_STATE | IBV_QP_QKEY;
constexpr Transition kTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInit, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit},
    {IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kRunning},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRunning},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRunning},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, kRunning},
};

int check_transition(ibv_qp_state from, ibv_qp_state to, const ibv_qp_attr& attr, int mask) {
  if ((mask & IBV_QP_CUR_STATE) != 0 && attr.cur_qp_state != from) return EINVAL;
  if ((mask & IBV_QP_PORT) != 0 && attr.port_num != 1) return EINVAL;
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && attr.pkey_index != 0) return EINVAL;
  const int rest = mask & ~IBV_QP_STATE;
  if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
    return (rest & ~IBV_QP_CUR_STATE) != 0 ? EINVAL : 0;
  for (const Transition& t : kTransitions)
    if (t.from == from && t.to == to)
      return (rest & t.required) == t.required && (rest & ~(t.required | t.optional)) == 0 ? 0 : EINVAL;
  return EINVAL;
}

}  // namespace

void DatagramQueuePair::enter_state(ibv_qp_state state) {
  const ibv_qp_state from = state_.exchange(state, std::memory_order_seq_cst);
  if (slot_ != nullptr) slot_->state.store(static_cast<std::uint32_t>(state), std::memory_order_relaxed);
  if (from != state)
    log::debug("QP {:#08x} ({}): state {} -> {}", number_, type_ == IBV_QPT_UD ? "UD" : "RD", static_cast<int>(from),
               static_cast<int>(state));
}

bool DatagramQueuePair::can_post_send() const {
  const ibv_qp_state s = state_.load(std::memory_order_relaxed);
  return s == IBV_QPS_RTS || s == IBV_QPS_SQD || s == IBV_QPS_SQE || s == IBV_QPS_ERR;
}

bool DatagramQueuePair::receives_now() const {
  switch (state_.load(std::memory_order_relaxed)) {
    case IBV_QPS_RTR:
    case IBV_QPS_RTS:
    case IBV_QPS_SQD:
    case IBV_QPS_SQE:
      return true;
    default:
      return false;
  }
}

void DatagramQueuePair::note_first_message() {
  if (state_.load(std::memory_order_relaxed) == IBV_QPS_RTR && !std::exchange(first_told_, true))
    context().raise(IBV_EVENT_COMM_EST, handle_);
}

void DatagramQueuePair::check_drained() {
  if (!tells_drained_ || state_.load(std::memory_order_relaxed) != IBV_QPS_SQD || !drained()) return;
  tells_drained_ = false;
  context().raise(IBV_EVENT_SQ_DRAINED, handle_);
}

int DatagramQueuePair::modify(const ibv_qp_attr& attr, int mask) {
  int rc = 0;
  engine().run([&] { rc = modify_now(attr, mask); });
  return rc;
}

int DatagramQueuePair::modify_now(const ibv_qp_attr& attr, int mask) {
  const ibv_qp_state from = state_.load(std::memory_order_relaxed);
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : from;
  const int rc = check_transition(from, to, attr, mask);
  if (rc == 0) {
    if ((mask & IBV_QP_QKEY) != 0) qkey_ = attr.qkey;
    if ((mask & IBV_QP_SQ_PSN) != 0) sq_psn_ = attr.sq_psn;
    switch (to) {
      case IBV_QPS_RESET:
        reset_queues();
        break;
      case IBV_QPS_ERR:
        fail();
        break;
      case IBV_QPS_SQD:
        enter_state(to);
        tells_drained_ =
            from == IBV_QPS_RTS && (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 && attr.en_sqd_async_notify != 0;
        check_drained();
        break;
      default:
        enter_state(to);
        if (to == IBV_QPS_RTR) first_told_ = false;
        serve();  // requests that were posted in SQD
    }
  }
  return rc;
}

int DatagramQueuePair::query(ibv_qp_attr& attr, ibv_qp_init_attr& init) {
  attr = {};
  attr.qp_state = attr.cur_qp_state = state_.load(std::memory_order_relaxed);
  attr.qkey = qkey_;
  attr.sq_psn = sq_psn_;
  attr.cap = cap_;
  attr.port_num = 1;
  attr.path_mig_state = IBV_MIG_MIGRATED;
  init.qp_context = qp_context_;
  init.cap = cap_;
  init.qp_type = type_;
  init.sq_sig_all = signal_all_ ? 1 : 0;
  return 0;
}

void DatagramQueuePair::flush_receives() {
  for (const std::uint64_t tail = rq_.tail(); rq_.head() < tail;) {
    const ReceiveEntry e = rq_.entry(rq_.head());
    rq_.retire(rq_.head() + 1);
    flush_receive(e);
  }
}

void DatagramQueuePair::flush_receive(const ReceiveEntry& e) {
  ibv_wc wc{};
  wc.wr_id = e.wr_id;
  wc.status = IBV_WC_WR_FLUSH_ERR;
  wc.opcode = IBV_WC_RECV;
  complete(*recv_cq_, wc, true);
}

// To ERR: by the application, after a receive whose memory was bad, or without a completion queue.
void DatagramQueuePair::fail() {
  const bool first = state_.load(std::memory_order_relaxed) != IBV_QPS_ERR;
  enter_state(IBV_QPS_ERR);
  flush_sends();
  flush_receives();
  if (first && srq_ != nullptr) context().raise(IBV_EVENT_QP_LAST_WQE_REACHED, handle_);
}

void DatagramQueuePair::check_overflow() {
  if (!overflowed_ || state_.load(std::memory_order_relaxed) == IBV_QPS_ERR) return;
  context().raise(IBV_EVENT_QP_FATAL, handle_);
  fail();
}

// To RESET: no completion of this QP is seen any more.
void DatagramQueuePair::reset_queues() {
  // First: posters look at the state with the queue locked, so nothing is posted behind what is dropped here.
  enter_state(IBV_QPS_RESET);
  drop_sends();
  {
    const llp::Guard guard(rq_.lock);
    rq_.retire(rq_.tail());
  }
  qkey_ = sq_psn_ = 0;
  overflowed_ = first_told_ = tells_drained_ = false;
  send_cq_->purge(number_);
  recv_cq_->purge(number_);
}

}  // namespace ewarp::verbs
