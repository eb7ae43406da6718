// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Requests of ours: Sends, Writes, Reads and atomics become segments of the REQ lane.
#include <algorithm>
#include <cassert>

#include "ddp/segment.h"
#include "rdmap/datagram/stream.h"
#include "rdmap/message.h"

namespace ewarp::rdmap {

using llp::rd::Lane;

bool DatagramEndpoint::peek(Association& a, Lane lane, std::optional<std::uint32_t>* first_msn) {
  first_msn->reset();
  auto* s = static_cast<Stream*>(a.user);
  if (s == nullptr) return lane == Lane::req && consumer_.next_send(a.key()) != nullptr;  // closed: to be opened again?
  const Activity* act = s->activity;
  if (act != nullptr && act->abandoned) return false;
  if (lane == Lane::rsp) return act != nullptr && act->answers_taken < act->answers.size();
  if (act != nullptr && (act->closing || !act->sending.idle())) {
    if (!act->closing && act->sending.state() == Sending::State::immediate) *first_msn = s->tx_msn[ddp::kQueueSend];
    return true;
  }
  const SendRequest* next = startable(a, *s);
  if (next == nullptr) return false;
  if (next->operation == Operation::send) *first_msn = s->tx_msn[ddp::kQueueSend];
  return true;
}

// The next request, if it may be started now. What cannot be started at all fails here, alone.
SendRequest* DatagramEndpoint::startable(Association& a, Stream& s) {
  while (SendRequest* r = consumer_.next_send(a.key())) {
    Activity& act = activate(s);
    if (act.checked == r) return r;
    if (r->fence && !act.awaited.empty()) return nullptr;
    const Status status = check_request(a, *r);
    if (status == Status::success) {
      if (has_response(r->operation) && act.awaited.size() >= a.ord()) return nullptr;
      return act.checked = r;
    }
    act.begun.push_back({.request = r, .status = status, .failed = true});
    consumer_.send_started(a.key());
    complete(act);
  }
  settle(s);
  return nullptr;
}

Status DatagramEndpoint::check_request(const Association& a, const SendRequest& r) {
  // The peer takes none of these at all.
  if (has_response(r.operation) && a.ord() == 0) return Status::remote_invalid;
  if (is_atomic(r.operation) && (a.options() & llp::rd::option::kAtomics) == 0) return Status::remote_invalid;
  return r.length == 0 ? Status::success : consumer_.request_memory(r, 0, r.length, pieces_);
}

void DatagramEndpoint::take(Association& a, Lane lane, std::uint32_t, std::size_t mulpdu, Outgoing& out) {
  Stream& s = *static_cast<Stream*>(a.user);
  if (lane == Lane::req)
    take_request(a, s, mulpdu, out);
  else
    take_answer(s, mulpdu, out);
}

void DatagramEndpoint::take_request(const Association& a, Stream& s, std::size_t mulpdu, Outgoing& out) {
  Activity& act = activate(s);
  if (act.closing) return take_closing(s, act, out);
  if (act.sending.idle()) {
    assert(act.checked != nullptr);  // peek() has found it
    SendRequest& r = *act.checked;
    act.checked = nullptr;
    act.current_name = act.first_begun + act.begun.size();
    act.begun.push_back({.request = &r, .answered = !has_response(r.operation)});
    consumer_.send_started(a.key());
    if (has_response(r.operation)) return take_whole(s, act, r, out);
    act.sending.begin(r);
  }
  if (act.sending.state() == Sending::State::immediate) {
    out.head_size = static_cast<std::uint8_t>(
        emit_immediate(act.sending.request(), s.tx_msn[ddp::kQueueSend]++, MutableOctets(out.head)));
    out.message = act.current_name;
    out.last = true;
    act.sending.end();
    ++counters.tx_messages;
    return;
  }
  take_payload(s, act, mulpdu, out);
}

// A Read's sink is named by a key of this request alone, so a response can touch nothing but this request's memory.
void DatagramEndpoint::take_whole(Stream& s, Activity& act, const SendRequest& r, Outgoing& out) {
  const std::uint32_t msn = s.tx_msn[ddp::kQueueRequest]++;
  assert(has_response(r.operation));
  act.awaited.push_back({.name = act.current_name, .length = r.length, .msn = msn, .atomic = is_atomic(r.operation)});
  const std::uint32_t sink = act.awaited.back().sink();
  const std::size_t n = is_atomic(r.operation)
                            ? emit_atomic_request(r, sink, msn, out.head)
                            : emit_read_request({sink, 0, r.length, r.remote_stag, r.remote_to}, msn, out.head);
  out.head_size = static_cast<std::uint8_t>(n);
  out.message = act.current_name;
  out.last = true;
  ++(is_atomic(r.operation) ? counters.tx_atomics : counters.tx_reads);
  ++counters.tx_messages;
}

void DatagramEndpoint::take_payload(Stream& s, Activity& act, std::size_t mulpdu, Outgoing& out) {
  const SendRequest& r = act.sending.request();
  const std::uint64_t offset = act.sending.offset();
  const bool send = r.operation == Operation::send;
  if (send && r.immediate) {
    out.immediate = r.immediate_data;
    mulpdu -= sizeof r.immediate_data;
  }
  const ddp::Cut cut = ddp::cut_evenly(r.length, offset, mulpdu, payload_header(r));
  out.head_size = static_cast<std::uint8_t>(emit_payload_header(r, ImmediatePlace::beside, s.tx_msn[ddp::kQueueSend],
                                                                offset, cut.last, MutableOctets(out.head)));
  out.message = act.current_name;
  out.offset = offset;
  out.payload = cut.payload;
  act.sending.advance(cut.payload);
  if (!cut.last) return;
  act.sending.payload_done();
  out.last = act.sending.idle();
  s.tx_msn[ddp::kQueueSend] += send;
  ++(send ? counters.tx_sends : counters.tx_writes);
  ++counters.tx_messages;
}

void DatagramEndpoint::take_closing(Stream& s, Activity& act, Outgoing& out) {
  std::copy_n(act.closing->head.begin(), act.closing->head_size, out.head.begin());
  out.head_size = act.closing->head_size;
  out.immediate = act.closing->immediate;
  out.last = true;
  s.tx_msn[ddp::kQueueSend] += act.closing->untagged;
  act.closing.reset();
  settle(s);
}

int DatagramEndpoint::memory(Association& a, Lane lane, const Outgoing& segment, std::span<llp::Extent> out) {
  auto* s = static_cast<Stream*>(a.user);
  if (s == nullptr || s->activity == nullptr) return -1;
  Activity& act = *s->activity;
  if (lane == Lane::rsp) return answer_memory(act, segment, out);
  const Activity::Begun* b = act.find(segment.message);
  if (b == nullptr) return -1;
  if (consumer_.request_memory(*b->request, segment.offset, segment.payload, pieces_) != Status::success) return -1;
  assert(pieces_.count <= out.size());
  std::copy_n(pieces_.items.begin(), pieces_.count, out.begin());
  return static_cast<int>(pieces_.count);
}

void DatagramEndpoint::acknowledged(Association& a, Lane lane, std::uint64_t message) {
  Stream& s = *static_cast<Stream*>(a.user);
  if (s.activity == nullptr) return;
  Activity& act = *s.activity;
  if (lane == Lane::rsp) {
    if (message != act.first_answer || act.answers_taken == 0) return;
    act.answers.pop_front();
    ++act.first_answer;
    --act.answers_taken;
  } else if (Activity::Begun* b = act.find(message)) {
    b->accepted = true;
    complete(act);
  }
  settle(s);
}

}  // namespace ewarp::rdmap
