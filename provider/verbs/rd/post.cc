// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Posting to queue pairs of RD.
#include <endian.h>

#include <cerrno>

#include "llp/datagram_header.h"
#include "provider/engine/engine.h"
#include "provider/verbs/rd/rd_queue_pair.h"
#include "provider/verbs/requests.h"

namespace ewarp::verbs {
namespace {

constexpr unsigned kKnownSendFlags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

}  // namespace

// What the caller controls; memory is looked at when the request is executed.
int RdQueuePair::check_send(const ibv_send_wr& wr, const Target& to, std::uint64_t* length) const {
  const bool is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  switch (wr.opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      if (wr.num_sge != 1 || wr.sg_list[0].length != rdmap::kAtomicOctets) return EINVAL;
      [[fallthrough]];
    case IBV_WR_RDMA_READ:
      if (is_inline) return EINVAL;
      [[fallthrough]];
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      if (is_ud()) return EINVAL;
      break;
    default:
      return EINVAL;
  }
  if ((wr.send_flags & ~kKnownSendFlags) != 0 || to.ah == nullptr || to.qpn > kMaxQpn) return EINVAL;
  if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > cap_.max_send_sge) return EINVAL;
  const AddressHandle& ah = static_cast<const AddressHandleObject*>(to.ah)->impl;
  if (ah.pd != &pd_ || ah.multicast) return EINVAL;
  std::uint64_t total = 0;
  for (int i = 0; i < wr.num_sge; ++i) total += wr.sg_list[i].length;
  *length = total;
  const std::uint64_t most = is_inline ? cap_.max_inline_data : is_ud() ? llp::kMaxUdMessage : kMaxMessage;
  return total > most ? EINVAL : 0;
}

int RdQueuePair::put_send(const ibv_send_wr& wr, const Target& to, std::uint32_t slot) {
  if (!can_post_send()) return EINVAL;
  std::uint64_t length = 0;
  if (const int rc = check_send(wr, to, &length)) return rc;
  RdSend& s = sq_.at(slot);
  s.wr_id = wr.wr_id;
  s.to = static_cast<const AddressHandleObject*>(to.ah)->impl;
  s.peer.ip = RdPaths::ip_of(s.to.destination.to.sin6_addr);
  s.peer.local_qpn = number_;
  s.peer.remote_qpn = to.qpn;
  s.peer.local = RdPaths::local_of(s.to.destination.source);
  s.peer.qkey = (to.qkey & kOwnQkey) != 0 ? qkey_.load(std::memory_order_relaxed) : to.qkey;
  s.signaled = signal_all_ || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  s.solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  s.fence = (wr.send_flags & IBV_SEND_FENCE) != 0;
  s.is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  s.length = static_cast<std::uint32_t>(length);
  put_operation(wr, s);
  s.sge_count = sq_.put_pieces(slot, wr);
  return 0;
}

// Here wr.ud has the address.
int RdQueuePair::post_send(ibv_send_wr* wr, ibv_send_wr** bad) {
  const int rc = sq_.post(false, wr, bad, [this](const ibv_send_wr& next, std::uint32_t slot) {
    const bool has_address =
        next.opcode == IBV_WR_SEND || next.opcode == IBV_WR_SEND_WITH_IMM || next.opcode == IBV_WR_SEND_WITH_INV;
    const auto& ud = next.wr.ud;
    return has_address ? put_send(next, {ud.ah, ud.remote_qpn, ud.remote_qkey}, slot) : EINVAL;
  });
  engine().kick(*this);  // what came before the bad one is posted, and runs
  return rc;
}

int RdQueuePair::post_all(ibv_send_wr* wr) {
  const int rc = sq_.post(true, wr, &wr, [this](const ibv_send_wr& next, std::uint32_t slot) {
    if (is_ud()) return put_send(next, {next.wr.ud.ah, next.wr.ud.remote_qpn, next.wr.ud.remote_qkey}, slot);
    const auto& request = static_cast<const AddressedSend&>(next);
    return put_send(next, {request.ah, request.remote_qpn, request.remote_qkey}, slot);
  });
  if (rc == 0) engine().kick(*this);
  return rc;
}

}  // namespace ewarp::verbs
