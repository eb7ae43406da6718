// Creation, completion and the end of queue pairs.
#include "provider/verbs/queue_pair.h"

#include <endian.h>
#include <errno.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "provider/verbs/engine.h"
#include "provider/verbs/log.h"
#include "provider/verbs/qp_numbers.h"
#include "provider/verbs/requests.h"

namespace ewarp::verbs {
namespace {


struct Registry {
  std::mutex mutex;
  std::unordered_map<std::uint32_t, std::weak_ptr<QueuePair>> pairs;
};

Registry& registry() {
  static Registry* r = new Registry;
  return *r;
}

ibv_wc_opcode wc_opcode(const SendEntry& e) {
  if (e.local != LocalOperation::none) return e.local == LocalOperation::bind ? IBV_WC_BIND_MW : IBV_WC_LOCAL_INV;
  return verbs::wc_opcode(e.operation);
}

}  // namespace

QueuePairApi& api(QueuePair& qp) { return qp; }

int create_qp(Pd& pd, ibv_qp_init_attr& init, CompletionQueue* send_cq, CompletionQueue* recv_cq,
              std::shared_ptr<QueuePair>* out, SharedReceiveQueue* srq) {
  if (init.qp_type != IBV_QPT_RC) return EOPNOTSUPP;
  if (const int rc = QueuePair::check_caps(init.cap, send_cq, recv_cq, srq)) return rc;
  const std::uint32_t number = qp_numbers().take();
  auto qp = std::make_shared<QueuePair>(pd, send_cq, recv_cq, srq, number);
  if (const int rc = qp->create(init)) {
    qp_numbers().give(number);
    return rc;
  }
  Registry& r = registry();
  std::lock_guard guard(r.mutex);
  r.pairs[number] = qp;
  *out = std::move(qp);
  return 0;
}

std::shared_ptr<QueuePair> find_qp(std::uint32_t number) {
  Registry& r = registry();
  std::lock_guard guard(r.mutex);
  const auto it = r.pairs.find(number);
  return it == r.pairs.end() ? nullptr : it->second.lock();
}

QueuePair::QueuePair(Pd& pd, CompletionQueue* send_cq, CompletionQueue* recv_cq, SharedReceiveQueue* srq,
                     std::uint32_t number)
    : QueuePairBase(pd, send_cq, recv_cq, srq, number, IBV_QPT_RC), ird_(kMaxRdAtomic), ord_(kMaxRdAtomic) {}

QueuePair::~QueuePair() { destroy(); }

int QueuePair::create(ibv_qp_init_attr& init) {
  ibv_qp_cap& c = init.cap;
  // Some room for inline data is always there: rsockets asks for none and then needs 4 octets of it on iWARP.
  if (!sq_.create(c.max_send_wr, c.max_send_sge, std::max(c.max_inline_data, kMinInline)) ||
      !rq_.create(c.max_recv_wr, srq_ != nullptr ? srq_->sges() : c.max_recv_sge, 0)) {
    destroyed_ = true;
    return ENOMEM;
  }
  settle_in(init, {sq_.depth(), rq_.depth(), sq_.sges(), rq_.sges(), sq_.extra()});
  return 0;
}

void QueuePair::destroy() {
  {
    Registry& r = registry();
    std::lock_guard guard(r.mutex);
    if (std::exchange(destroyed_, true)) return;
    r.pairs.erase(number_);
  }
  Engine& e = engine();
  e.enter();
  e.serve_kicks();  // nobody posts to this QP any more, so it cannot come back to the list
  stop_bring_up();
  if (connection_ != nullptr) {
    drop_stream(true);
  }
  state_.store(IBV_QPS_RESET, std::memory_order_seq_cst);
  stop_timer();
  leave_queues();
  e.leave();
  leave_owners();
}

// --- completions ---

void QueuePair::send_done(rdmap::SendRequest& request, rdmap::Status status) {
  auto& e = static_cast<SendEntry&>(request);
  e.done = true;
  e.status = status;
  retire_sends();
}

// Completions leave in posting order (RFC 5040 section 5.5 rule 8): a Write behind an unfinished Read waits for it.
void QueuePair::retire_sends() {
  std::uint64_t head = sq_.head();
  while (head < started_ && sq_.entry(head).done) {
    const SendEntry& e = sq_.entry(head);
    const bool told = e.signaled || e.status != rdmap::Status::success;
    ibv_wc wc{};
    wc.wr_id = e.wr_id;
    wc.status = wc_status(e.status);
    wc.opcode = wc_opcode(e);
    if (e.local == LocalOperation::bind && e.status == rdmap::Status::local_protection) wc.status = IBV_WC_MW_BIND_ERR;
    wc.byte_len = e.length;
    // The slot first: who sees the completion may post into it at once.
    sq_.retire(++head);
    quiet_ = !told;
    if (told) complete(*send_cq_, wc, false);
  }
}

void QueuePair::receive_done(const rdmap::Received& received) {
  const ReceiveEntry& e = rq_.entry(receive_at_);
  ibv_wc wc{};
  wc.wr_id = e.wr_id;
  wc.status = wc_status(received.status);
  wc.opcode = received.by_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  wc.byte_len = received.length;
  if (received.invalidated && received.status == rdmap::Status::success) {
    wc.wc_flags = IBV_WC_WITH_INV;
    wc.invalidated_rkey = received.invalidated_stag;
  } else if (received.immediate) {
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = htobe32(received.immediate_data);
  }
  rq_.retire(receive_at_ + 1);
  complete(*recv_cq_, wc, received.solicited);
}

// Everything on the send queue that is not complete. first: the status of the oldest one.
void QueuePair::flush_sends(rdmap::Status first) {
  const std::uint64_t tail = sq_.tail();
  started_ = tail;
  for (std::uint64_t at = sq_.head(); at < tail; ++at) {
    SendEntry& e = sq_.entry(at);
    if (e.done) continue;
    e.done = true;
    e.status = std::exchange(first, rdmap::Status::flushed);
  }
  retire_sends();
}

void QueuePair::flush_receives() {
  const std::uint64_t tail = rq_.tail();
  for (receive_at_ = rq_.head(); receive_at_ < tail; ++receive_at_)
    receive_done(rdmap::Received{.status = rdmap::Status::flushed});
}

void QueuePair::publish_counters() {
  if (connection_ == nullptr) return;
  const rdmap::EndpointCounters& now = connection_->endpoint().counters;
  rdmap::EndpointCounters& then = published_;
  const auto move = [&](stats::Traffic& t) {
    stats::add(t.tx_octets, connection_->tx_octets - published_tx_);
    stats::add(t.rx_octets, connection_->rx_octets - published_rx_);
    stats::add(t.tx_messages, now.tx_messages - then.tx_messages);
    stats::add(t.rx_messages, now.rx_messages - then.rx_messages);
    stats::add(t.tx_sends, now.tx_sends - then.tx_sends);
    stats::add(t.rx_sends, now.rx_sends - then.rx_sends);
    stats::add(t.tx_writes, now.tx_writes - then.tx_writes);
    stats::add(t.rx_write_segments, now.rx_write_segments - then.rx_write_segments);
    stats::add(t.tx_reads, now.tx_reads - then.tx_reads);
    stats::add(t.rx_reads, now.rx_reads - then.rx_reads);
    stats::add(t.terminates_sent, now.terminates_sent - then.terminates_sent);
    stats::add(t.terminates_received, now.terminates_received - then.terminates_received);
    stats::add(t.crc_errors, now.crc_errors - then.crc_errors);
  };
  move(context().device().counters().traffic);
  if (slot_ != nullptr) move(slot_->traffic);
  then = now;
  published_tx_ = connection_->tx_octets;
  published_rx_ = connection_->rx_octets;
}

}  // namespace ewarp::verbs
