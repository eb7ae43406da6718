// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Creation, posting and the end of UD queue pairs.
#include "provider/verbs/ud/ud_queue_pair.h"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "llp/mutex.h"
#include "provider/engine/engine.h"
#include "provider/verbs/ud/multicast.h"

namespace ewarp::verbs {
namespace {

constexpr unsigned kKnownSendFlags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

}  // namespace

int create_ud_qp(Pd& pd, ibv_qp_init_attr& init, CompletionQueue* send_cq, CompletionQueue* recv_cq,
                 std::shared_ptr<UdQueuePair>* out, SharedReceiveQueue* srq) {
  if (init.qp_type != IBV_QPT_UD) return EINVAL;
  return make_datagram_pair(pd, init, send_cq, recv_cq, srq, out);
}

int UdQueuePair::create(ibv_qp_init_attr& init) {
  const ibv_qp_cap& c = init.cap;
  if (!sq_.create(c.max_send_wr, c.max_send_sge, std::max(c.max_inline_data, kMinInline)) || !make_receive_queue(c)) {
    give_up();
    return ENOMEM;
  }
  begin(init, sq_.depth(), sq_.sges(), sq_.extra());
  return 0;
}

void UdQueuePair::leave_port() {
  leave_groups(*this);
}

void UdQueuePair::serve() {
  switch (state_.load(std::memory_order_seq_cst)) {
    case IBV_QPS_RTS:
      if (port_->blocked() || transmit()) port_->wait(*this);
      break;
    case IBV_QPS_ERR:
      flush_receives();
      [[fallthrough]];
    case IBV_QPS_SQE:
      flush_sends();
      break;
    default:
      break;
  }
}

void UdQueuePair::flush_sends() {
  for (const std::uint64_t tail = sq_.tail(); sq_.head() < tail;) send_done(IBV_WC_WR_FLUSH_ERR);
}

void UdQueuePair::drop_sends() {
  const llp::Guard guard(sq_.lock);
  sq_.retire(sq_.tail());
  msn_ = error_msn_ = 1;
}

// What the caller controls; memory is looked at when the datagram is sent.
int UdQueuePair::put_send(const ibv_send_wr& wr, std::uint64_t position) {
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
  e.sge_count = put_pieces(sq_, position, wr);
  return 0;
}

// Requires: the queue's lock. Nothing is posted before the caller publishes it.
int UdQueuePair::put_next(const ibv_send_wr& wr, std::uint64_t position) {
  if (!can_post_send()) return EINVAL;
  return position - sq_.head() >= sq_.depth() ? ENOMEM : put_send(wr, position);
}

int UdQueuePair::post_send(ibv_send_wr* wr, ibv_send_wr** bad) {
  int rc;
  {
    const llp::Guard guard(sq_.lock);
    rc = put_sends(sq_, false, wr, bad, [this](const auto& next, auto position) { return put_next(next, position); });
  }
  engine().kick(*this);  // what came before the bad one is posted, and runs
  return rc;
}

int UdQueuePair::post_all(ibv_send_wr* wr) {
  int rc;
  {
    const llp::Guard guard(sq_.lock);
    rc = put_sends(sq_, true, wr, &wr, [this](const auto& next, auto position) { return put_next(next, position); });
  }
  if (rc == 0) engine().kick(*this);
  return rc;
}

}  // namespace ewarp::verbs
