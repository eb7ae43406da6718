// Creation, posting and the end of UD queue pairs.
#include "provider/verbs/datagram_queue_pair.h"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "provider/verbs/engine.h"
#include "provider/verbs/log.h"
#include "provider/verbs/multicast.h"
#include "provider/verbs/qp_numbers.h"

namespace ewarp::verbs {
namespace {

constexpr std::uint32_t kMinInline = 64;
constexpr unsigned kKnownSendFlags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
constexpr std::uint32_t kOwnQkey = 0x80000000;  // in remote_qkey: the QP's own is meant
constexpr std::uint32_t kMaxQpn = 0xffffff;

bool can_post_send(ibv_qp_state s) {
  return s == IBV_QPS_RTS || s == IBV_QPS_SQD || s == IBV_QPS_SQE || s == IBV_QPS_ERR;
}

}  // namespace

int create_datagram_qp(Pd& pd, ibv_qp_init_attr& init, CompletionQueue* send_cq, CompletionQueue* recv_cq,
                       std::shared_ptr<DatagramQueuePair>* out, SharedReceiveQueue* srq) {
  ibv_qp_cap& c = init.cap;
  if (srq != nullptr) c.max_recv_wr = c.max_recv_sge = 0;
  if (init.qp_type != IBV_QPT_UD || send_cq == nullptr || recv_cq == nullptr || c.max_send_wr > kMaxQpWr ||
      c.max_recv_wr > kMaxQpWr || c.max_send_sge > kMaxSge || c.max_recv_sge > kMaxSge ||
      c.max_inline_data > kMaxInline)
    return EINVAL;
  const std::uint32_t number = qp_numbers().take_datagram();
  if (number == 0) {
    log::error("no UDP port for a UD queue pair: none from 16384 up can be bound");
    return EADDRNOTAVAIL;
  }
  auto qp = std::make_shared<DatagramQueuePair>(pd, send_cq, recv_cq, srq, number);
  if (const int error = qp->create(init)) {
    qp_numbers().give(number);
    return error;
  }
  *out = std::move(qp);
  return 0;
}

DatagramQueuePair::DatagramQueuePair(Pd& pd, CompletionQueue* send_cq, CompletionQueue* recv_cq,
                                     SharedReceiveQueue* srq, std::uint32_t number)
    : pd_(pd), send_cq_(send_cq), recv_cq_(recv_cq), srq_(srq), number_(number) {}

DatagramQueuePair::~DatagramQueuePair() {
  destroy();
}

int DatagramQueuePair::create(ibv_qp_init_attr& init) {
  ibv_qp_cap& c = init.cap;
  const bool own = srq_ == nullptr;
  if (!sq_.create(c.max_send_wr, c.max_send_sge, std::max(c.max_inline_data, kMinInline)) ||
      !rq_.create(own ? c.max_recv_wr : 1, own ? c.max_recv_sge : srq_->sges(), 0)) {
    destroyed_ = true;  // nothing to undo
    return ENOMEM;
  }
  c.max_send_wr = sq_.depth();
  c.max_send_sge = sq_.sges();
  c.max_inline_data = sq_.extra();
  if (own) {
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
    slot_->type = IBV_QPT_UD;
    slot_->state.store(IBV_QPS_RESET, std::memory_order_relaxed);
    slot_->number.store(number_, std::memory_order_relaxed);
  }
  stats::add(context().device().counters().qps_created);
  Engine& e = engine();
  e.enter();
  port_ = DatagramPort::of(number_);
  port_->attach(number_, *this);
  e.leave();
  return 0;
}

void DatagramQueuePair::destroy() {
  if (std::exchange(destroyed_, true)) return;
  Engine& e = engine();
  e.enter();
  e.serve_kicks();  // nobody posts to this QP any more, so it cannot come back to the list
  leave_groups(*this);
  port_->detach(number_, *this);
  state_.store(IBV_QPS_RESET, std::memory_order_seq_cst);
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

int DatagramQueuePair::attach(int fd, const mpa::StreamParams&, std::shared_ptr<StreamObserver>) {
  engine().close_now(fd);
  return EINVAL;
}

void DatagramQueuePair::complete(CompletionQueue& cq, ibv_wc& wc, bool solicited) {
  wc.qp_num = number_;
  if (!push_counted(cq, context(), slot_, wc, solicited)) overflowed_ = true;
}

// What the caller controls; memory is looked at when the datagram is sent.
int DatagramQueuePair::put_send(const ibv_send_wr& wr, std::uint64_t position) {
  if (wr.opcode != IBV_WR_SEND && wr.opcode != IBV_WR_SEND_WITH_IMM) return EINVAL;
  if ((wr.send_flags & ~kKnownSendFlags) != 0 || wr.wr.ud.ah == nullptr || wr.wr.ud.remote_qpn > kMaxQpn) return EINVAL;
  if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > cap_.max_send_sge) return EINVAL;
  const AddressHandle& ah = static_cast<const AddressHandleObject*>(wr.wr.ud.ah)->impl;
  std::uint64_t length = 0;
  for (int i = 0; i < wr.num_sge; ++i) length += wr.sg_list[i].length;
  const bool is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  if (ah.pd != &pd_ || length > llp::kMaxUdMessage || (is_inline && length > cap_.max_inline_data)) return EINVAL;
  DatagramSend& e = sq_.entry(position);
  e.wr_id = wr.wr_id;
  e.length = static_cast<std::uint32_t>(length);
  e.qkey = (wr.wr.ud.remote_qkey & kOwnQkey) != 0 ? qkey_.load(std::memory_order_relaxed) : wr.wr.ud.remote_qkey;
  e.immediate = wr.opcode == IBV_WR_SEND_WITH_IMM;
  e.immediate_data = e.immediate ? be32toh(wr.imm_data) : 0;
  e.signaled = signal_all_ || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  e.solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  e.is_inline = is_inline;
  e.crc = ah.crc;
  e.qpn = wr.wr.ud.remote_qpn;
  e.to = ah.destination;
  e.to.to.sin6_port = htons(port_of(e.qpn));
  e.sge_count = is_inline ? 0 : static_cast<std::uint16_t>(wr.num_sge);
  std::byte* at = sq_.extra(position);
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& s = wr.sg_list[i];
    if (!is_inline) {
      sq_.sge(position)[i] = Sge{s.addr, s.length, s.lkey};
    } else if (s.length > 0) {  // else its address may be null
      std::memcpy(at, reinterpret_cast<const void*>(s.addr), s.length);
      at += s.length;
    }
  }
  return 0;
}

// Requires: the queue's lock. Nothing is posted before the caller publishes it.
int DatagramQueuePair::put_next(const ibv_send_wr& wr, std::uint64_t position) {
  if (!can_post_send(state_.load(std::memory_order_relaxed))) return EINVAL;
  return position - sq_.head() >= sq_.depth() ? ENOMEM : put_send(wr, position);
}

int DatagramQueuePair::post_send(ibv_send_wr* wr, ibv_send_wr** bad) {
  int rc;
  {
    const std::lock_guard guard(sq_.lock);
    rc = put_sends(sq_, false, wr, bad, [this](const auto& next, auto position) { return put_next(next, position); });
  }
  engine().kick(*this);  // what came before the bad one is posted, and runs
  return rc;
}

int DatagramQueuePair::post_all(ibv_send_wr* wr) {
  int rc;
  {
    const std::lock_guard guard(sq_.lock);
    rc = put_sends(sq_, true, wr, &wr, [this](const auto& next, auto position) { return put_next(next, position); });
  }
  if (rc == 0) engine().kick(*this);
  return rc;
}

int DatagramQueuePair::post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) {
  int rc = 0;
  {
    const std::lock_guard guard(rq_.lock);
    const bool allowed = state_.load(std::memory_order_relaxed) != IBV_QPS_RESET && srq_ == nullptr;
    rc = put_receives(rq_, allowed, cap_.max_recv_sge, wr, bad);
  }
  // Pairs with publish(): the flusher reads the tail after it set the state.
  if (state_.load(std::memory_order_seq_cst) == IBV_QPS_ERR) engine().kick(*this);
  return rc;
}

}  // namespace ewarp::verbs
