// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Posting work.
#include <errno.h>

#include <algorithm>

#include "llp/mutex.h"
#include "provider/base/options.h"
#include "provider/engine/burst_habit.h"
#include "provider/engine/engine.h"
#include "provider/verbs/rc/rc_queue_pair.h"
#include "provider/verbs/requests.h"
#include "provider/verbs/sge.h"
#include "provider/verbs/write_hold.h"

namespace ewarp::verbs {
namespace {

// What is counted as copied (burst_habit.h) is what is.
static_assert(Posted::kCopied == rdmap::Endpoint::kCopyMessage);

constexpr unsigned kKnownSendFlags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

// early: the QP is being connected by address. Sends are taken in RTR then, as hardware does: perftest's server
// grants its credits there (docs/user/byaddr.md).
bool can_post_send(ibv_qp_state s, bool early) {
  return (s == IBV_QPS_RTR && early) || s == IBV_QPS_RTS || s == IBV_QPS_SQD || s == IBV_QPS_SQE || s == IBV_QPS_ERR;
}

}  // namespace

// What the caller controls; memory is looked at when the request is executed.
int RcQueuePair::check_send(const ibv_send_wr& wr, std::uint64_t* length) const {
  switch (wr.opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_RDMA_WRITE:
      break;
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      if (!extensions_) return EINVAL;
      break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      if (!extensions_ || wr.num_sge != 1 || wr.sg_list[0].length != rdmap::kAtomicOctets) return EINVAL;
      [[fallthrough]];
    case IBV_WR_RDMA_READ:
      if (ord_ == 0 || (wr.send_flags & IBV_SEND_INLINE) != 0) return EINVAL;
      break;
    default:
      return EINVAL;
  }
  if ((wr.send_flags & ~kKnownSendFlags) != 0) return EINVAL;
  if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > cap_.max_send_sge) return EINVAL;
  std::uint64_t total = 0;
  for (int i = 0; i < wr.num_sge; ++i) total += wr.sg_list[i].length;
  if (total > kMaxMessage) return EINVAL;
  if ((wr.send_flags & IBV_SEND_INLINE) != 0 && total > cap_.max_inline_data) return EINVAL;
  *length = total;
  return 0;
}

namespace {

std::uint64_t octets_to_send(const SendEntry& e) {
  return e.local != LocalOperation::none || rdmap::has_response(e.operation) ? 0 : e.length;
}

}  // namespace

int RcQueuePair::put_send(const ibv_send_wr& wr, std::uint64_t position) {
  if (wr.opcode == IBV_WR_BIND_MW || wr.opcode == IBV_WR_LOCAL_INV) return put_local(wr, position);
  std::uint64_t length = 0;
  if (const int rc = check_send(wr, &length)) return rc;
  SendEntry& e = sq_.entry(position);
  e.wr_id = wr.wr_id;
  e.signaled = signal_all_ || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  e.solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  e.fence = (wr.send_flags & IBV_SEND_FENCE) != 0;
  e.is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  e.done = false;
  e.local = LocalOperation::none;
  e.status = rdmap::Status::success;
  e.length = static_cast<std::uint32_t>(length);
  put_operation(wr, e);
  e.sge_count = put_pieces(sq_, position, wr);
  if (hold_ != nullptr && wr.opcode == IBV_WR_RDMA_WRITE)
    hold_->posted(length >= WriteHold::kLarge ? WriteHold::Time::clock::now() : WriteHold::Time());
  return 0;
}

// Requires: the queue's lock. Nothing is posted before the caller publishes it.
int RcQueuePair::put_next(const ibv_send_wr& wr, std::uint64_t position) {
  if (!can_post_send(state_.load(std::memory_order_relaxed), sends_in_rtr_)) return EINVAL;
  return position - sq_.head() >= sq_.depth() ? ENOMEM : put_send(wr, position);
}

int RcQueuePair::post(bool whole, ibv_send_wr* wr, ibv_send_wr** bad) {
  int rc;
  Posted what{.local = local_.load(std::memory_order_relaxed)};
  bool idle;
  {
    const llp::Guard guard(sq_.lock);
    idle = sq_.head() == sq_.tail();
    rc = put_sends(sq_, whole, wr, bad, [&](const ibv_send_wr& next, std::uint64_t position) {
      const int refused = put_next(next, position);
      if (refused == 0) what.add(octets_to_send(sq_.entry(position)));
      return refused;
    });
  }
  if (rc == ENOMEM) engine().send_waiting();  // makes room, maybe
  if (rc != 0 && whole) return rc;
  // What came before the bad one is posted, and runs. Who keeps the queue filled is not waiting to compute: two threads
  // that take turns at one stream would only be in each other's way.
  const unsigned limit = options().hand_over_octets;
  const bool large =
      idle && limit != 0 && what.octets >= limit && state_.load(std::memory_order_relaxed) == IBV_QPS_RTS;
  // RcQueuePair::serve() (serve.cc) follows, in this thread or by who holds the engine.
  large ? engine().kick_large(*this, what) : engine().kick_soon(*this, what);
  return rc;
}

int RcQueuePair::post_send(ibv_send_wr* wr, ibv_send_wr** bad) {
  return post(false, wr, bad);
}

int RcQueuePair::post_all(ibv_send_wr* wr) {
  return post(true, wr, &wr);
}

int RcQueuePair::post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) {
  int rc = 0;
  // With an SRQ the engine's holder is the producer of rq_.
  if (srq_ != nullptr && wr != nullptr) *bad = wr;
  if (srq_ != nullptr) return wr != nullptr ? EINVAL : 0;
  {
    const llp::Guard guard(rq_.lock);
    const bool allowed = state_.load(std::memory_order_relaxed) != IBV_QPS_RESET;
    rc = put_receives(rq_, allowed, cap_.max_recv_sge, wr, bad);
  }
  // In these states nobody else would flush it. Pairs with publish(): the flusher reads the tail after it set the
  // state. stalled_ pairs with check_stall() in the same way.
  const ibv_qp_state s = state_.load(std::memory_order_seq_cst);
  if (s == IBV_QPS_ERR || s == IBV_QPS_SQD || stalled_.load(std::memory_order_seq_cst)) engine().kick(*this);
  return rc;
}

}  // namespace ewarp::verbs
