// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// From a datagram to a receive of a UD queue pair. What is bad is dropped and counted: the QP stays as it is.
#include <endian.h>

#include <algorithm>
#include <array>

#include "ddp/header.h"
#include "ddp/untagged.h"
#include "provider/engine/engine.h"
#include "provider/verbs/sge.h"
#include "provider/verbs/ud/error_reports.h"
#include "provider/verbs/ud/grh.h"
#include "provider/verbs/ud/ud_queue_pair.h"
#include "rdmap/header.h"

namespace ewarp::verbs {
namespace {

using llp::DatagramDrop;

bool is_whole_send(const ddp::UntaggedHeader& h) {
  return h.last && h.qn == ddp::kQueueSend && h.mo == 0 && rdmap::version_of(h.ulp) == rdmap::kRdmapVersion;
}

// The header area and the payload behind it, which share the pieces of the scatter list.
bool scatter(const Pd& pd, std::span<const Sge> sges, Octets grh, Octets payload) {
  rdmap::ExtentList pieces;
  if (resolve_sges(pd, sges, 0, grh.size() + payload.size(), IBV_ACCESS_LOCAL_WRITE, pieces) != rdmap::Status::success)
    return false;
  for (llp::Extent piece : pieces.all()) {
    for (Octets* from : {&grh, &payload}) {
      llp::Extent part = piece;
      part.length = std::min(piece.length, from->size());
      if (part.length == 0) continue;
      if (!copy_in(part, from->data())) return false;
      *from = from->subspan(part.length);
      piece.address += part.length;
      piece.length -= part.length;
    }
  }
  return true;
}

}  // namespace

// The checks that are answered with silence. True: a UD_SEND with our Q_Key, of a sender whose number can be answered.
bool UdQueuePair::is_for_us(const DatagramIn& in) {
  if (!receives_now() || port_of(in.datagram.prefix.source) == 0) {
    count_drop(DatagramDrop::qp);
    return false;
  }
  switch (in.datagram.prefix.type) {
    case llp::DatagramType::ud_send:
      break;
    case llp::DatagramType::ud_error:
      stats::add(stats::page().datagrams.errors_received);
      return false;
    default:
      count_drop(DatagramDrop::wrong_type);
      return false;
  }
  if (llp::UdSend::parse(in.datagram).qkey == qkey_.load(std::memory_order_relaxed)) return true;
  count_drop(DatagramDrop::qkey);
  return false;
}

void UdQueuePair::receive(const DatagramIn& in) {
  if (!is_for_us(in)) return;
  note_first_message();
  take(in, llp::UdSend::parse(in.datagram));
  check_overflow();
}

void UdQueuePair::take(const DatagramIn& in, const llp::UdSend& header) {
  const Octets segment = in.datagram.segment;
  if (segment.size() < ddp::UntaggedHeader::kSize || ddp::is_tagged(segment)) return count_drop(DatagramDrop::segment);
  const auto ddp = ddp::UntaggedHeader::parse(segment);
  if (!ddp.ok() || !is_whole_send(ddp.value())) return count_drop(DatagramDrop::segment);
  const auto opcode = static_cast<rdmap::Opcode>(rdmap::opcode_of(ddp.value().ulp));
  if (opcode != rdmap::Opcode::send && opcode != rdmap::Opcode::send_se) {
    count_drop(DatagramDrop::opcode);
    error_reports().send(in, number_, fault::kRdmapOpcode, error_msn_);
    return;
  }
  const Octets payload = segment.subspan(ddp::UntaggedHeader::kSize);
  const ReceiveEntry* next = next_receive();
  if (next == nullptr) return count_drop(DatagramDrop::no_receive);
  if (next->length < kGrh + payload.size()) {
    count_drop(DatagramDrop::too_long);
    error_reports().send(in, number_, fault::kDdpTooLong, error_msn_);
    return;
  }
  deliver(in, header, payload, opcode == rdmap::Opcode::send_se);
}

// Where others wait for the shared queue to be filled, nobody overtakes them.
const ReceiveEntry* UdQueuePair::next_receive() {
  if (srq_ != nullptr) return srq_->front();
  return rq_.head() == rq_.tail() ? nullptr : &rq_.entry(rq_.head());
}

void UdQueuePair::deliver(const DatagramIn& in, const llp::UdSend& header, Octets payload, bool solicited) {
  if (srq_ != nullptr) srq_->take(rq_);
  const std::uint64_t at = rq_.head();
  const ReceiveEntry& e = rq_.entry(at);
  const Pd& pd = srq_ != nullptr ? srq_->pd() : pd_;
  const std::span sges(rq_.sge(at), e.sge_count);
  const bool good = scatter(pd, sges, make_grh(in.arrival, in.arrival.payload.size()), payload);
  ibv_wc wc{};
  wc.wr_id = e.wr_id;
  wc.status = good ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
  wc.opcode = IBV_WC_RECV;
  wc.byte_len = static_cast<std::uint32_t>(kGrh + payload.size());
  wc.src_qp = in.datagram.prefix.source;
  wc.wc_flags = IBV_WC_GRH;
  if (header.immediate) {
    wc.wc_flags |= IBV_WC_WITH_IMM;
    wc.imm_data = htobe32(*header.immediate);
  }
  count_traffic([&](stats::Traffic& t) {
    stats::add(t.rx_octets, in.arrival.payload.size());
    stats::add(t.rx_messages);
    stats::add(t.rx_sends);
  });
  rq_.retire(at + 1);
  complete(*recv_cq_, wc, solicited);
  if (!good) fail();
}

}  // namespace ewarp::verbs
