// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// From the send queue of a UD queue pair to the socket.
#include <array>
#include <cerrno>
#include <cstring>

#include "ddp/header.h"
#include "ddp/untagged.h"
#include "llp/crc32c.h"
#include "provider/base/log.h"
#include "provider/verbs/memory/held_regions.h"
#include "provider/verbs/sge.h"
#include "provider/verbs/ud/ud_queue_pair.h"
#include "rdmap/header.h"

namespace ewarp::verbs {
namespace {

constexpr std::size_t kHead = llp::UdSend::kMaxHeader + llp::kSegmentLength + ddp::UntaggedHeader::kSize;
constexpr int kRounds = 4;  // then other QPs of the port get their turn

HeldRegions& held() {
  static auto* regions = new HeldRegions;
  return *regions;
}

std::size_t put_head(MutableOctets out, const DatagramSend& e, std::uint32_t number, std::uint32_t msn) {
  llp::UdSend header{e.qkey, {}};
  if (e.immediate) header.immediate = e.immediate_data;
  std::size_t at = header.emit(out, e.qpn, number, e.crc);
  put_be<std::uint16_t>(out, at, static_cast<std::uint16_t>(ddp::UntaggedHeader::kSize + e.length));
  at += llp::kSegmentLength;
  const auto opcode = e.solicited ? rdmap::Opcode::send_se : rdmap::Opcode::send;
  ddp::UntaggedHeader{true, rdmap::control(opcode), 0, ddp::kQueueSend, msn, 0}.emit(
      out.subspan(at).first<ddp::UntaggedHeader::kSize>());
  return at + ddp::UntaggedHeader::kSize;
}

}  // namespace

// False: memory that may not be read; the datagram was not added.
bool UdQueuePair::build(llp::UdpOutbox& out, std::uint64_t position) {
  const DatagramSend& e = sq_.entry(position);
  rdmap::ExtentList pieces;
  pieces.clear();
  if (e.is_inline)
    pieces.add(llp::Extent{sq_.extra(position), e.length, nullptr, 0});
  else if (resolve_sges(pd_, std::span(sq_.sge(position), e.sge_count), 0, e.length, 0, pieces) !=
           rdmap::Status::success)
    return false;
  out.begin(e.to);
  llp::Crc32c crc;
  std::array<std::byte, kHead> head;
  const std::size_t head_size = put_head(head, e, number_, msn_);
  const bool copy = e.length <= kCopyLimit;
  // One append for what is copied: header, payload and CRC are then one piece.
  MutableOctets own = out.append(head_size + (copy ? e.length : 0));
  std::memcpy(own.data(), head.data(), head_size);
  if (e.crc && !copy) crc.update(own);
  std::size_t at = head_size;
  for (const llp::Extent& piece : pieces.all()) {
    const bool good = copy ? copy_out(own.data() + at, piece)
                           : held().enter(piece) && (!e.crc || crc.read(piece.address, piece.length));
    if (!good) {
      out.undo();
      return false;
    }
    at += piece.length;
    if (!copy) out.append(piece.address, piece.length);
  }
  if (e.crc && copy) crc.update(own);
  const auto field = out.append(llp::kDatagramCrc).first<llp::kDatagramCrc>();
  if (e.crc)
    crc.emit(field);
  else
    put_be<std::uint32_t>(field, 0, 0);
  if (e.qpn == llp::kMulticastQpn) group_source_ = e.to.source;
  ++msn_;
  return true;
}

// True: there is more to send, and room for it.
bool UdQueuePair::transmit() {
  llp::UdpOutbox& out = datagram_outbox();
  for (int round = 0; round < kRounds; ++round) {
    if (state_.load(std::memory_order_relaxed) != IBV_QPS_RTS) return false;
    const std::uint64_t head = sq_.head(), tail = sq_.tail();
    if (head == tail) return false;
    bool bad_memory = false;
    out.clear();
    for (std::uint64_t at = head; at < tail && held().has_room() &&
                                  out.has_room(rdmap::ExtentList::kMax + 2, kHead + kCopyLimit + llp::kDatagramCrc);
         ++at) {
      bad_memory = !build(out, at);
      if (bad_memory) break;
    }
    const std::size_t built = out.size();
    int error = 0;
    const std::size_t sent = built == 0 ? 0 : port_->send(out, &error);
    held().leave();
    if (!settle(sent, built, error)) return false;
    if (sent == built && bad_memory) fail_sends(IBV_WC_LOC_PROT_ERR);
    check_overflow();
  }
  return sq_.head() != sq_.tail();
}

// What was sent is complete. False: the rest has to wait.
bool UdQueuePair::settle(std::size_t sent, std::size_t built, int error) {
  for (std::size_t i = 0; i < sent; ++i) send_done(IBV_WC_SUCCESS);
  if (sent == built) return true;
  msn_ -= static_cast<std::uint32_t>(built - sent);  // they are built again
  if (error == EAGAIN) {
    port_->wait(*this);
    return false;
  }
  if (error == EFAULT || error == EMSGSIZE) {  // the caller's own fault
    log::info("QP {:#08x}: a datagram cannot be sent: {}", number_, std::strerror(error));
    fail_sends(error == EFAULT ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR);
    return true;
  }
  // Of the network, of an address that has gone, or of a peer's number without a port: a loss on the way.
  ++msn_;
  stats::add(stats::page().datagrams.tx_lost);
  send_done(IBV_WC_SUCCESS);
  return true;
}

// To SQE: the oldest request has failed, those behind it are flushed, receiving goes on.
void UdQueuePair::fail_sends(ibv_wc_status first) {
  enter_state(IBV_QPS_SQE);
  send_done(first);
  flush_sends();
}

// The oldest request.
void UdQueuePair::send_done(ibv_wc_status status) {
  const std::uint64_t at = sq_.head();
  const DatagramSend& e = sq_.entry(at);
  ibv_wc wc{};
  wc.wr_id = e.wr_id;
  wc.status = status;
  wc.opcode = IBV_WC_SEND;
  wc.byte_len = e.length;
  const bool told = e.signaled || status != IBV_WC_SUCCESS;
  if (status == IBV_WC_SUCCESS) {
    count_traffic([&](stats::Traffic& t) {
      stats::add(t.tx_octets, llp::UdSend::kMaxHeader + e.length);
      stats::add(t.tx_messages);
      stats::add(t.tx_sends);
    });
  }
  // The slot first: who sees the completion may post into it at once.
  sq_.retire(at + 1);
  if (told) complete(*send_cq_, wc, false);
}

}  // namespace ewarp::verbs
