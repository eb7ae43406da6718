// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What RDMAP asks of a queue pair of RD, and tells it.
#include <endian.h>

#include <algorithm>
#include <array>

#include "provider/verbs/rd/rd_queue_pair.h"
#include "provider/verbs/requests.h"
#include "provider/verbs/sge.h"
#include "provider/verbs/ud/grh.h"

namespace ewarp::verbs {

// --- receives that are being filled ---

// For one more, and for the end of each: that must not need memory.
void RdOpenReceives::make_room() {
  if (!free_.empty()) return;
  entries_.emplace_back();
  pieces_.resize(entries_.size() * kMaxSge);
  free_.reserve(entries_.capacity());
  returned_.reserve(entries_.capacity());
  free_.push_back(static_cast<std::uint32_t>(entries_.size() - 1));
}

std::uint32_t RdOpenReceives::take(WorkQueue<ReceiveEntry>& queue) {
  make_room();
  const std::uint32_t i = free_.back();
  free_.pop_back();
  const std::uint64_t head = queue.head();
  Slot& slot = entries_[i];
  slot.entry = queue.entry(head);
  slot.open = true;
  std::copy_n(queue.sge(head), slot.entry.sge_count, pieces_.begin() + static_cast<std::ptrdiff_t>(i * kMaxSge));
  queue.retire(head + 1);
  return i;
}

void RdOpenReceives::close(std::uint32_t i) {
  entries_[i].open = false;
  free_.push_back(i);
}

std::uint32_t RdOpenReceives::take_returned() {
  const std::uint32_t i = returned_.front();
  returned_.erase(returned_.begin());
  return i;
}

// --- requests ---

llp::rd::Admission RdQueuePair::admit(const rdmap::Peer& peer) {
  if (state_.load(std::memory_order_relaxed) == IBV_QPS_ERR) return llp::rd::Admission::qp_gone;
  const bool ours = peer.local_qpn == number_ && peer.qkey == qkey_.load(std::memory_order_relaxed) && receives_now();
  return ours ? llp::rd::Admission::welcome : llp::rd::Admission::unknown;
}

rdmap::SendRequest* RdQueuePair::next_send(const rdmap::Peer& peer) {
  const ibv_qp_state state = state_.load(std::memory_order_relaxed);
  if (state != IBV_QPS_RTS && state != IBV_QPS_SQD) return nullptr;
  RdSend* const first = sq_.first(peer);
  if (state == IBV_QPS_RTS) return first;
  halted_ |= first != nullptr;
  return nullptr;
}

void RdQueuePair::send_started(const rdmap::Peer& peer) {
  sq_.start(peer);
  ++in_progress_;
}

void RdQueuePair::send_done(rdmap::SendRequest& request, rdmap::Status status) {
  --in_progress_;
  if (state_.load(std::memory_order_relaxed) == IBV_QPS_RESET) return;  // destroyed
  // What is gathered in place must have left before its owner has it back. Of a success nothing is left: see
  // RdPort::acknowledged().
  if (status != rdmap::Status::success) rd().release_memory();
  complete_send(static_cast<RdSend&>(request), wc_status(status));
}

void RdQueuePair::complete_send(RdSend& s, ibv_wc_status status) {
  ibv_wc wc{};
  wc.wr_id = s.wr_id;
  wc.status = status;
  wc.opcode = wc_opcode(s.operation);
  wc.byte_len = s.length;
  const bool told = s.signaled || status != IBV_WC_SUCCESS;
  if (status == IBV_WC_SUCCESS)
    count_traffic(
        [&](stats::Traffic& t) { stats::add(has_response(s.operation) ? t.rx_octets : t.tx_octets, s.length); });
  // The slot first: who sees the completion may post into it at once.
  sq_.release(s);
  if (told) complete(*send_cq_, wc, false);
}

rdmap::Status RdQueuePair::request_memory(const rdmap::SendRequest& request, std::uint64_t offset, std::uint64_t n,
                                          rdmap::ExtentList& out) {
  const auto& s = static_cast<const RdSend&>(request);
  if (s.is_inline) {
    out.clear();
    out.add(llp::Extent{sq_.inline_data(s) + offset, static_cast<std::size_t>(n), nullptr, 0});
    return rdmap::Status::success;
  }
  const unsigned need = rdmap::has_response(s.operation) ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0u;
  return resolve_sges(pd_, sq_.pieces(s), offset, n, need, out);
}

// --- receives ---

std::uint32_t RdQueuePair::available() const {
  const std::uint64_t n = srq_ == nullptr ? rq_.tail() - rq_.head() : srq_->ready_for(*this) ? srq_->queued() : 0;
  return static_cast<std::uint32_t>(n) + open_.returned();
}

std::uint32_t RdQueuePair::receives() const {
  return receives_now() ? available() : 0;
}

std::optional<RdQueuePair::Receive> RdQueuePair::take_receive() {
  if (!receives_now()) return std::nullopt;
  if (open_.returned() > 0) return open_.take_returned();
  if (srq_ != nullptr) {
    open_.make_room();  // first: what has left the shared queue is not lost
    if (srq_->ready_for(*this) && srq_->take(rq_)) return open_.take(rq_);
    stand_in_line();
    return std::nullopt;
  }
  // Pairs with post_recv(): it publishes, then looks whether somebody waits.
  if (rq_.head() == rq_.tail()) awaits_receives_.exchange(true, std::memory_order_seq_cst);
  if (rq_.head() == rq_.tail()) return std::nullopt;
  return open_.take(rq_);
}

std::uint64_t RdQueuePair::receive_capacity(Receive receive) {
  const std::uint64_t length = open_.at(receive).length;
  return length - std::min<std::uint64_t>(length, front());
}

rdmap::Status RdQueuePair::receive_memory(Receive receive, std::uint64_t offset, std::uint64_t n,
                                          rdmap::ExtentList& out) {
  return resolve_sges(srq_ != nullptr ? srq_->pd() : pd_, open_.pieces(receive), front() + offset, n,
                      IBV_ACCESS_LOCAL_WRITE, out);
}

// The header that a UD program finds before the payload; as the message's way tells it, since it came in many
// datagrams.
bool RdQueuePair::put_grh(Receive receive, const rdmap::Peer& from, std::uint32_t length) {
  const RdPath* path = rd().path(from);
  if (path == nullptr) return true;
  llp::UdpArrival a;
  a.from = path->to.to;
  a.to = path->to.source;
  a.tos = path->to.tos;
  a.ttl = path->to.ttl;
  return copy_to_sges(srq_ != nullptr ? srq_->pd() : pd_, open_.pieces(receive), 0, make_grh(a, length));
}

// Others may wait for what came from a shared queue, so there it goes. Where that is full, nobody waits.
void RdQueuePair::give_back(Receive receive) {
  if (srq_ == nullptr) return open_.give_back(receive);
  std::array<ibv_sge, kMaxSge> list;
  const std::span<const Sge> pieces = open_.pieces(receive);
  std::transform(pieces.begin(), pieces.end(), list.begin(), [](const Sge& s) {
    return ibv_sge{s.address, s.length, s.lkey};
  });
  ibv_recv_wr wr{open_.at(receive).wr_id, nullptr, list.data(), static_cast<int>(pieces.size())};
  ibv_recv_wr* bad = nullptr;
  if (srq_->post(&wr, &bad) != 0) return open_.give_back(receive);
  open_.close(receive);
}

void RdQueuePair::receive_done(Receive receive, const rdmap::Peer& from, const rdmap::Received& received) {
  // Broken off: to a program a flushed receive would mean that the queue pair has failed.
  if (received.status == rdmap::Status::flushed) return give_back(receive);
  note_first_message();
  ibv_wc wc{};
  wc.wr_id = open_.at(receive).wr_id;
  wc.status = wc_status(received.status);
  wc.opcode = received.by_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  wc.byte_len = front() + received.length;
  wc.src_qp = from.remote_qpn;
  if (is_ud()) {
    wc.wc_flags |= IBV_WC_GRH;
    if (wc.status == IBV_WC_SUCCESS && !put_grh(receive, from, received.length)) wc.status = IBV_WC_LOC_PROT_ERR;
  }
  if (received.immediate) {
    wc.wc_flags |= IBV_WC_WITH_IMM;
    wc.imm_data = htobe32(received.immediate_data);
  }
  if (received.invalidated) {
    wc.wc_flags |= IBV_WC_WITH_INV;
    wc.invalidated_rkey = received.invalidated_stag;
  }
  count_traffic([&](stats::Traffic& t) { stats::add(t.rx_octets, received.length); });
  open_.close(receive);
  complete(*recv_cq_, wc, received.solicited);
}

// --- memory that peers name ---

ddp::Verdict RdQueuePair::resolve(std::uint32_t stag, std::uint64_t to, std::uint64_t n, rdmap::RemoteRight right,
                                  llp::Extent& out) {
  return memory().resolve(stag, pd_, to, n, access_for(right), &out, number_);
}

ddp::Verdict RdQueuePair::invalidate(std::uint32_t stag) {
  return memory().invalidate(stag, pd_, number_, peers_invalidate());
}

// Datagrams of UD.
void RdQueuePair::receive(const DatagramIn&) {
  count_drop(llp::DatagramDrop::wrong_type);
}

}  // namespace ewarp::verbs
