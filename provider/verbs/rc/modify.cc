// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The states of a queue pair (docs/design/verbs.md): ibv_modify_qp() and ibv_query_qp().
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <cassert>

#include "llp/mutex.h"
#include "provider/base/log.h"
#include "provider/base/options.h"
#include "provider/engine/engine.h"
#include "provider/verbs/rc/rc_queue_pair.h"

namespace ewarp::verbs {
namespace {

const char* name_of(ibv_qp_state s) {
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return static_cast<unsigned>(s) < std::size(kNames) ? kNames[s] : "?";
}

// Which attributes may accompany a transition; those that are not in the table may not be made. On an RNIC the
// connection manager makes RTR and RTS, and rdma_cm asks for fewer attributes than the table of ibv_modify_qp(3), so
// none is demanded; what is not in `rnic` is refused all the same. With AV and DEST_QPN the QP is brought up without
// rdma_cm (bring_up.h). On the twin that table holds: all of ca_required, and of the rest ca_optional.
struct Transition {
  ibv_qp_state from, to;
  int rnic;
  int ca_required, ca_optional;
};
constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kPeer = IBV_QP_AV | IBV_QP_DEST_QPN;
constexpr int kRtr = kInit | kPeer | IBV_QP_PATH_MTU | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                     IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH;
constexpr int kRts = kInit | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                     IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_CUR_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH |
                     IBV_QP_PATH_MIG_STATE;
constexpr int kSqd = kRts | IBV_QP_MAX_DEST_RD_ATOMIC;
constexpr int kCaRtr = kPeer | IBV_QP_PATH_MTU | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kCaRtrOptional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int kCaRts = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kCaRtsOptional =
    IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER;
constexpr Transition kTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInit, kInit, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, kInit, 0, kInit},
    {IBV_QPS_INIT, IBV_QPS_RTR, kRtr, kCaRtr, kCaRtrOptional},
    {IBV_QPS_RTR, IBV_QPS_RTS, kRts, kCaRts, kCaRtsOptional},
    {IBV_QPS_RTS, IBV_QPS_RTS, kRts, 0, kCaRtsOptional},
    // On the twin check_mask() has refused these before.
    {IBV_QPS_RTS, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY, 0, 0},
    {IBV_QPS_SQD, IBV_QPS_SQD, kSqd, 0, 0},
};

// Which states may follow each other. The connection manager hands a stream to a queue pair in any state before RTS;
// one whose bring-up fails at once goes back to INIT.
[[maybe_unused]] constexpr bool may_follow(ibv_qp_state from, ibv_qp_state to) {
  if (from == to) return true;  // attributes alone change
  switch (to) {
    case IBV_QPS_RESET:
    case IBV_QPS_ERR:
      return true;
    case IBV_QPS_INIT:
      return from == IBV_QPS_RESET || from == IBV_QPS_RTR;
    case IBV_QPS_RTR:
      return from == IBV_QPS_INIT;
    case IBV_QPS_RTS:
      return from == IBV_QPS_RESET || from == IBV_QPS_INIT || from == IBV_QPS_RTR;
    case IBV_QPS_SQD:
      return from == IBV_QPS_RTR || from == IBV_QPS_RTS;
    default:
      return false;
  }
}

// 4.096 us * 2^timeout for each try. Of both attributes five and three bits count.
std::chrono::milliseconds all_tries(unsigned timeout, unsigned retries) {
  const auto one = std::chrono::nanoseconds(std::int64_t{4096} << (timeout & 31));
  return std::chrono::duration_cast<std::chrono::milliseconds>(one * ((retries & 7) + 1));
}

}  // namespace

void RcQueuePair::enter_state(ibv_qp_state state) {
  assert(engine().held() && may_follow(state_.load(std::memory_order_relaxed), state));
  const ibv_qp_state from = state_.exchange(state, std::memory_order_seq_cst);
  if (slot_ != nullptr) slot_->state.store(static_cast<std::uint32_t>(state), std::memory_order_relaxed);
  if (from != state) log::debug("QP {:#08x}: {} -> {}", number_, name_of(from), name_of(state));
}

// 0, or why the transition may not be made with this mask.
int RcQueuePair::check_mask(ibv_qp_state from, ibv_qp_state to, const ibv_qp_attr& attr, int mask) const {
  if ((mask & IBV_QP_CUR_STATE) != 0 && attr.cur_qp_state != from) return EINVAL;
  if ((mask & IBV_QP_PORT) != 0 && attr.port_num != 1) return EINVAL;
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && attr.pkey_index != 0) return EINVAL;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0 && (attr.qp_access_flags & ~0xffu) != 0) return EINVAL;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attr.max_rd_atomic > kMaxRdAtomic) return EINVAL;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && attr.max_dest_rd_atomic > kMaxRdAtomic) return EINVAL;
  if (from == IBV_QPS_RESET && to == IBV_QPS_ERR) return EINVAL;
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return (mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE)) != 0 ? EINVAL : 0;
  // On an RNIC a graceful close. On IB it halts the send queue, which nobody was seen to use.
  const bool twin = context().device().twin();
  if (twin && to == IBV_QPS_SQD) return EOPNOTSUPP;
  for (const Transition& t : kTransitions) {
    if (t.from != from || t.to != to) continue;
    const int rest = mask & ~IBV_QP_STATE;
    if ((rest & kPeer) != 0 && (rest & kPeer) != kPeer) return EINVAL;
    if ((rest & IBV_QP_PATH_MTU) != 0 && (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > IBV_MTU_4096)) return EINVAL;
    if (!twin) return (rest & ~t.rnic) != 0 ? EINVAL : 0;
    return (rest & t.ca_required) != t.ca_required || (rest & ~(t.ca_required | t.ca_optional)) != 0 ? EINVAL : 0;
  }
  return EINVAL;
}

void RcQueuePair::apply(const ibv_qp_attr& attr, int mask) {
  if (mask & IBV_QP_ACCESS_FLAGS) {
    access_ = attr.qp_access_flags;
    access_given_ = true;
  }
  // A stream that was there first has the last word.
  if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
    ord_ = connection_ != nullptr ? std::min<std::uint16_t>(attr.max_rd_atomic, ord_) : attr.max_rd_atomic;
  if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) ird_ = attr.max_dest_rd_atomic;
  if (mask & IBV_QP_AV) given_.ah_attr = attr.ah_attr;
  if (mask & IBV_QP_DEST_QPN) given_.dest_qp_num = attr.dest_qp_num;
  if (mask & IBV_QP_PATH_MTU) given_.path_mtu = attr.path_mtu;
  if (mask & IBV_QP_RQ_PSN) given_.rq_psn = attr.rq_psn;
  if (mask & IBV_QP_SQ_PSN) given_.sq_psn = attr.sq_psn;
  if (mask & IBV_QP_TIMEOUT) given_.timeout = attr.timeout;
  if (mask & IBV_QP_RETRY_CNT) given_.retry_cnt = attr.retry_cnt;
  if (mask & (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT)) {
    timeout_given_ |= (mask & IBV_QP_TIMEOUT) != 0;
    if (connection_ != nullptr) connection_->limit_silence(silence_limit());
  }
  if (mask & IBV_QP_RNR_RETRY) given_.rnr_retry = attr.rnr_retry;
  if (mask & IBV_QP_MIN_RNR_TIMER) given_.min_rnr_timer = attr.min_rnr_timer;
}

// The option, or longer: what InfiniBand's local ACK timeout allows for all tries. 0: as TCP does.
std::chrono::milliseconds RcQueuePair::silence_limit() const {
  const std::chrono::milliseconds least = std::chrono::seconds(options().unacknowledged_s);
  if (least.count() == 0 || !timeout_given_) return least;
  return given_.timeout == 0 ? std::chrono::milliseconds(0)
                             : std::max(least, all_tries(given_.timeout, given_.retry_cnt));
}

// For how long sends to a peer that has left are unfinished. InfiniBand's timeout 0 is without end; not here.
std::chrono::milliseconds RcQueuePair::retry_time() const {
  const std::chrono::milliseconds most = std::chrono::seconds(options().unacknowledged_s);
  if (!timeout_given_) return std::chrono::milliseconds(0);
  return given_.timeout == 0 ? most : std::min(most, all_tries(given_.timeout, given_.retry_cnt));
}

int RcQueuePair::modify(const ibv_qp_attr& attr, int mask) {
  PeerAddress peer;
  const bool by_address = (mask & IBV_QP_STATE) != 0 && attr.qp_state == IBV_QPS_RTR && (mask & kPeer) == kPeer;
  // Looks at the interfaces: not with the engine held.
  const int bad_peer = by_address ? parse_peer(attr, context().device(), &peer) : 0;
  Engine& e = engine();
  if (by_address)
    if (const int error = e.start()) return error;
  int rc = 0;
  e.run_control([&] {
    engine().assert_held();
    rc = modify_now(attr, mask, by_address ? &peer : nullptr, bad_peer);
  });
  return rc;
}

int RcQueuePair::modify_now(const ibv_qp_attr& attr, int mask, const PeerAddress* peer, int bad_peer) {
  engine().assert_held();
  const ibv_qp_state from = state_.load(std::memory_order_relaxed);
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : from;
  int rc = 0;
  // rdma_disconnect() asks for SQD whatever happened before; there is nothing left to close then.
  const bool closed_already =
      to == IBV_QPS_SQD && (from == IBV_QPS_ERR || from == IBV_QPS_SQD) && (mask & ~IBV_QP_STATE) == 0;
  if (!closed_already) {
    // Without STATE only attributes that the present state lets change.
    if ((mask & IBV_QP_STATE) == 0 && !context().device().twin() &&
        (from == IBV_QPS_RESET || from == IBV_QPS_ERR || from == IBV_QPS_RTR))
      rc = (mask & ~kRts) != 0 || from == IBV_QPS_RESET ? EINVAL : check_mask(IBV_QPS_RTS, IBV_QPS_RTS, attr, mask);
    else
      rc = check_mask(from, to, attr, mask);
    // The stream makes RTS; an application cannot, unless it said who the peer is.
    if (rc == 0 && from == IBV_QPS_RTR && to == IBV_QPS_RTS && bring_up_ == nullptr) rc = EINVAL;
    if (rc == 0) rc = bad_peer;
    if (rc == 0) {
      apply(attr, mask);
      switch (to) {
        case IBV_QPS_RESET:
          reset_queues();
          break;
        case IBV_QPS_ERR:
          fail_stream(rdmap::Status::flushed);
          break;
        case IBV_QPS_SQD:
          if (from != IBV_QPS_RTS) break;
          tells_drained_ = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 && attr.en_sqd_async_notify != 0;
          begin_close();
          break;
        default:
          enter_state(to);
          if (peer != nullptr) rc = start_bring_up(*peer);
      }
    }
  }
  return rc;
}

int RcQueuePair::query(ibv_qp_attr& attr, ibv_qp_init_attr& init) {
  engine().run([&] {
    engine().assert_held();
    attr = given_;
  });
  attr.qp_state = attr.cur_qp_state = state_.load(std::memory_order_relaxed);
  ibv_port_attr port{};
  if (attr.path_mtu == 0 && context().device().query_port(1, &port, sizeof port) == 0) attr.path_mtu = port.active_mtu;
  attr.path_mig_state = IBV_MIG_MIGRATED;
  attr.qp_access_flags = access_;
  attr.cap = cap_;
  attr.pkey_index = pkey_index_;
  attr.port_num = port_;
  attr.max_rd_atomic = static_cast<std::uint8_t>(std::min<unsigned>(ord_, 255));
  attr.max_dest_rd_atomic = static_cast<std::uint8_t>(std::min<unsigned>(ird_, 255));
  init.qp_context = qp_context_;
  init.cap = cap_;
  init.qp_type = type_;
  init.sq_sig_all = signal_all_ ? 1 : 0;
  return 0;
}

void RcQueuePair::get_read_limits(std::uint16_t* ird, std::uint16_t* ord) {
  *ird = ird_;
  *ord = ord_;
}

// To RESET: no completion of this QP is seen any more.
void RcQueuePair::reset_queues() {
  engine().assert_held();
  // First: posters look at the state with the queue locked, so nothing is posted behind what is dropped here.
  enter_state(IBV_QPS_RESET);
  stop_bring_up();
  if (connection_ != nullptr) {
    drop_stream(true);
  }
  {
    const llp::Guard guard(sq_.lock);
    started_ = sq_.tail();
    sq_.retire(started_);
  }
  {
    const llp::Guard guard(rq_.lock);
    rq_.retire(rq_.tail());
  }
  overflowed_ = local_failed_ = tells_drained_ = false;
  local_.store(false, std::memory_order_relaxed);
  last_receive_told_ = false;
  // What the last stream brought, and what the application said of it.
  ird_ = ord_ = kMaxRdAtomic;
  extensions_ = false;
  access_ = 0;
  access_given_ = false;
  given_ = {};
  timeout_given_ = false;
  send_cq_->purge(number_);
  recv_cq_->purge(number_);
}

}  // namespace ewarp::verbs
