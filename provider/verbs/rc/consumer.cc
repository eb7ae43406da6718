// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What RDMAP asks of a queue pair (rdmap::Consumer): its work, the memory that work and peers name, completions.
#include <endian.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "provider/engine/engine.h"
#include "provider/verbs/rc/rc_queue_pair.h"
#include "provider/verbs/requests.h"
#include "provider/verbs/sge.h"
#include "provider/verbs/write_hold.h"

namespace ewarp::verbs {
namespace {

ibv_wc_opcode wc_opcode(const SendEntry& e) {
  if (e.local != LocalOperation::none) return e.local == LocalOperation::bind ? IBV_WC_BIND_MW : IBV_WC_LOCAL_INV;
  return verbs::wc_opcode(e.operation);
}

}  // namespace

rdmap::SendRequest* RcQueuePair::next_send() {
  engine().assert_held();
  const std::uint64_t limit = phase_ == Phase::closing ? close_limit_ : sq_.tail();
  while (started_ < limit) {
    SendEntry& e = sq_.entry(started_);
    if (e.local == LocalOperation::none) return local_failed_ ? nullptr : &e;
    if (!execute_local(e)) break;
  }
  return nullptr;
}

rdmap::Status RcQueuePair::request_memory(const rdmap::SendRequest& request, std::uint64_t offset, std::uint64_t n,
                                          rdmap::ExtentList& out) {
  const auto& e = static_cast<const SendEntry&>(request);
  if (e.is_inline) {
    out.clear();
    out.add(llp::Extent{sq_.extra(e) + offset, static_cast<std::size_t>(n), nullptr, 0});
    return rdmap::Status::success;
  }
  const unsigned need = rdmap::has_response(e.operation) ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0u;
  return resolve_sges(pd_, std::span(sq_.sge(e), e.sge_count), offset, n, need, out);
}

void RcQueuePair::send_started() {
  engine().assert_held();
  assert(started_ < sq_.tail());
  ++started_;
}

// In a graceful close nothing more is received (docs/design/verbs.md).
bool RcQueuePair::has_receive() const {
  engine().assert_held();
  if (rq_.head() != rq_.tail()) return true;
  return srq_ != nullptr && phase_ == Phase::running && srq_->ready_for(*this);
}

bool RcQueuePair::take_receive() {
  engine().assert_held();
  receive_at_ = rq_.head();
  if (receive_at_ == rq_.tail() && (srq_ == nullptr || phase_ != Phase::running || !srq_->take(rq_))) return false;
  receive_length_ = rq_.entry(receive_at_).length;
  return true;
}

std::uint64_t RcQueuePair::receive_capacity() const {
  engine().assert_held();
  return receive_length_;
}

rdmap::Status RcQueuePair::receive_memory(std::uint64_t offset, std::uint64_t n, rdmap::ExtentList& out) {
  engine().assert_held();
  const Pd& pd = srq_ != nullptr ? srq_->pd() : pd_;
  return resolve_sges(pd, std::span(rq_.sge(receive_at_), rq_.entry(receive_at_).sge_count), offset, n,
                      IBV_ACCESS_LOCAL_WRITE, out);
}

ddp::Verdict RcQueuePair::resolve(std::uint32_t stag, std::uint64_t to, std::uint64_t n, rdmap::RemoteRight right,
                                  llp::Extent& out) {
  engine().assert_held();
  // rdma_cm on an RNIC hands out rights that programs do not choose, and no atomics: those do not bind.
  const unsigned need = access_for(right);
  if (bring_up_ != nullptr && access_given_ && (access_.load(std::memory_order_relaxed) & need) != need)
    return ddp::Verdict::access;
  return memory().resolve(stag, pd_, to, n, need, &out, number_);
}

ddp::Verdict RcQueuePair::invalidate(std::uint32_t stag) {
  return memory().invalidate(stag, pd_, number_, peers_invalidate());
}

void RcQueuePair::send_done(rdmap::SendRequest& request, rdmap::Status status) {
  engine().assert_held();
  auto& e = static_cast<SendEntry&>(request);
  assert(!e.done);
  e.done = true;
  e.status = status;
  retire_sends();
}

// Completions leave in posting order (RFC 5040 section 5.5 rule 8): a Write behind an unfinished Read waits for it.
void RcQueuePair::retire_sends() {
  assert(sq_.head() <= started_ && started_ <= sq_.tail());
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
    // Who has posted more does not wait for the peer's answer to this one.
    const bool holdable = wc.opcode == IBV_WC_RDMA_WRITE && wc.status == IBV_WC_SUCCESS && head == sq_.tail();
    WriteHold* const hold = holdable ? hold_.get() : nullptr;
    if (hold != nullptr) hold->done(hold->is_large() ? WriteHold::Time::clock::now() : WriteHold::Time());
    if (told) complete(*send_cq_, wc, false, hold);
  }
}

void RcQueuePair::receive_done(const rdmap::Received& received) {
  engine().assert_held();
  assert(rq_.head() == receive_at_ && receive_at_ < rq_.tail());
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
void RcQueuePair::flush_sends(rdmap::Status first) {
  engine().assert_held();
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

bool RcQueuePair::has_memory(const SendEntry& e) {
  rdmap::ExtentList pieces;
  return request_memory(e, 0, e.length, pieces) == rdmap::Status::success &&
         std::all_of(pieces.begin(), pieces.end(), [this](const llp::Extent& piece) { return readable(piece); });
}

// Memory that was being written out is there no more: that of a send, which fails, or the source of a Read that the
// peer asked for.
void RcQueuePair::blame_for_memory() {
  engine().assert_held();
  const std::optional<Fault> known = connection_->endpoint().fault();
  connection_->endpoint().abandon();  // a send that is known to have failed ends with its own status
  Fault found = fault::kRdmapInvalidStag;
  for (std::uint64_t at = sq_.head(); at < started_; ++at) {
    SendEntry& e = sq_.entry(at);
    if (e.done || rdmap::has_response(e.operation) || has_memory(e)) continue;
    found = fault::kRdmapLocalCatastrophic;
    send_done(e, rdmap::Status::local_protection);
    break;
  }
  if (phase_ != Phase::terminating) raise_for(known.value_or(found));
}

void RcQueuePair::flush_receives() {
  engine().assert_held();
  const std::uint64_t tail = rq_.tail();
  for (receive_at_ = rq_.head(); receive_at_ < tail; ++receive_at_)
    receive_done(rdmap::Received{.status = rdmap::Status::flushed});
}

}  // namespace ewarp::verbs
