// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/queue_pair_base.h"

#include <cerrno>
#include <utility>

#include "provider/verbs/device/device.h"
#include "provider/verbs/qp_numbers.h"

namespace ewarp::verbs {

int QueuePairBase::check_caps(ibv_qp_cap& c, const CompletionQueue* send_cq, const CompletionQueue* recv_cq,
                              const SharedReceiveQueue* srq) {
  if (srq != nullptr) c.max_recv_wr = c.max_recv_sge = 0;
  const bool good = send_cq != nullptr && recv_cq != nullptr && c.max_send_wr <= kMaxQpWr &&
                    c.max_recv_wr <= kMaxQpWr && c.max_send_sge <= kMaxSge && c.max_recv_sge <= kMaxSge &&
                    c.max_inline_data <= kMaxInline;
  return good ? 0 : EINVAL;
}

void QueuePairBase::settle_in(ibv_qp_init_attr& init, const ibv_qp_cap& granted) {
  ibv_qp_cap& c = init.cap;
  c.max_send_wr = granted.max_send_wr;
  c.max_send_sge = granted.max_send_sge;
  c.max_inline_data = granted.max_inline_data;
  if (srq_ == nullptr) {
    c.max_recv_wr = granted.max_recv_wr;
    c.max_recv_sge = granted.max_recv_sge;
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
}

void QueuePairBase::leave_queues() {
  send_cq_->purge(number_);
  recv_cq_->purge(number_);
  if (slot_ != nullptr) stats::release_qp_slot(std::exchange(slot_, nullptr));
  stats::add(context().device().counters().qps_destroyed);
}

void QueuePairBase::leave_owners() {
  qp_numbers().give(number_);
  pd_.users.fetch_sub(1);
  send_cq_->users.fetch_sub(1);
  recv_cq_->users.fetch_sub(1);
  if (srq_ != nullptr) srq_->users.fetch_sub(1);
}

void QueuePairBase::complete(CompletionQueue& cq, ibv_wc& wc, bool solicited, WriteHold* hold) {
  wc.qp_num = number_;
  if (!push_counted(cq, context(), slot_, wc, solicited, hold)) overflowed_ = true;
}

}  // namespace ewarp::verbs
