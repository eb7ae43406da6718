// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Answers to requests of ours: what Reads and atomics bring, and the peer's word about what failed.
#include <cassert>

#include "rdmap/datagram/stream.h"
#include "rdmap/message.h"

namespace ewarp::rdmap {

using llp::rd::Take;

// All here that does not fit what was asked ends the association; the oldest request alone has the status that says
// so.
Take DatagramEndpoint::deliver_response(Stream& s, const Incoming& in) {
  Activity& act = *s.activity;
  if (in.immediate || parse_segment(in.segment, in.octets, true, segment_)) return Take::violation;
  act.drop_gone();
  if (act.awaited.empty()) return Take::violation;
  Take t = Take::violation;
  if (segment_.opcode == Opcode::read_response)
    t = deliver_read_response(act, in);
  else if (segment_.opcode == Opcode::atomic_response)
    t = deliver_atomic_response(act, in);
  if (t == Take::violation) act.fail(act.awaited.front().name, Status::bad_response);
  complete(act);
  return t;
}

Take DatagramEndpoint::deliver_read_response(Activity& act, const Incoming& in) {
  Awaited& read = act.awaited.front();
  if (read.atomic || check_read_response(segment_, read.sink(), read.received, read.length)) return Take::violation;
  const Octets payload = in.segment.subspan(segment_.header.size());
  if (read.state == Awaited::State::live && !in.placed && !payload.empty()) {
    const Activity::Begun& b = *act.find(read.name);
    if (consumer_.request_memory(*b.request, read.received, payload.size(), segment_.target) != Status::success ||
        !rdmap::place(consumer_, segment_.target, payload))
      give_up(act, read);
  }
  read.received += static_cast<std::uint32_t>(segment_.payload);
  assert(read.received <= read.length);
  if (segment_.last) answered(act);
  return Take::accepted;
}

// The fault is ours, so the peer hears nothing of it: its answer is taken and thrown away.
void DatagramEndpoint::give_up(Activity& act, Awaited& awaited) {
  awaited.enter(Awaited::State::abandoned);
  act.fail(awaited.name, Status::local_protection);
}

void DatagramEndpoint::answered(Activity& act) {
  assert(!act.awaited.empty());
  ++counters.rx_messages;
  if (Activity::Begun* b = act.find(act.awaited.front().name)) b->answered = true;
  act.awaited.pop_front();
}

Take DatagramEndpoint::deliver_atomic_response(Activity& act, const Incoming& in) {
  Awaited& atomic = act.awaited.front();
  if (check_queue(act.queues, segment_) || act.queues.check_offset(segment_.untagged, segment_.payload) ||
      !segment_.last)
    return Take::violation;
  const auto parsed = AtomicResponse::parse(in.segment.subspan(segment_.header.size()));
  if (!parsed.ok() || !atomic.atomic || atomic.sink() != parsed.value().request_id) return Take::violation;
  act.queues.advance(segment_.untagged, segment_.payload);
  const Activity::Begun& b = *act.find(atomic.name);
  if (consumer_.request_memory(*b.request, 0, kAtomicOctets, segment_.target) != Status::success ||
      !rdmap::place(consumer_, segment_.target, original_octets(parsed.value())))
    give_up(act, atomic);
  answered(act);
  return Take::accepted;
}

// Within the sink of a Read that is under way; its order is checked in its turn.
bool DatagramEndpoint::place_response(Activity& act, const Incoming& in) {
  if (segment_.opcode != Opcode::read_response) return false;
  for (std::size_t i = 0; i < act.awaited.size(); ++i) {
    const Awaited& read = act.awaited.at(i);
    if (read.atomic || read.state != Awaited::State::live || read.sink() != segment_.tagged.stag) continue;
    const std::uint64_t at = segment_.tagged.offset;
    if (at > read.length || segment_.payload > read.length - at) return false;
    const SendRequest& r = *act.find(read.name)->request;
    return consumer_.request_memory(r, at, segment_.payload, segment_.target) == Status::success &&
           rdmap::place(consumer_, segment_.target, in.segment.subspan(segment_.header.size()));
  }
  return false;
}

// One request fails, whichever the peer names; by its PSN where the sublayer still knows that, else, for a Read or an
// atomic that was accepted, by the headers that came back.
void DatagramEndpoint::reported(Association& a, std::uint64_t message, const Incoming& in) {
  auto* s = static_cast<Stream*>(a.user);
  ++counters.reports_received;
  if (s == nullptr || s->activity == nullptr || s->activity->abandoned) return;
  Activity& act = *s->activity;
  Terminate report{fault::kRdmapUnspecified, false, 0, {}, {}, false};
  if (in.segment.size() > ddp::UntaggedHeader::kSize)
    if (auto parsed = Terminate::parse(in.segment.subspan(ddp::UntaggedHeader::kSize)); parsed.ok())
      report = parsed.value();
  std::uint64_t name = message;
  for (std::size_t i = 0; i < act.awaited.size(); ++i) {
    Awaited& w = act.awaited.at(i);
    const bool it = message != 0 ? w.name == message : is_about_response(report, w.atomic, w.sink(), w.msn);
    if (w.state == Awaited::State::gone || !it) continue;
    name = w.name;
    w.enter(Awaited::State::gone);
    break;
  }
  act.drop_gone();
  if (name == 0) return settle(*s);
  if (!act.sending.idle() && act.current_name == name) cut_short(*s, act);
  // Nothing is broken that would end anything here: what names no fault of the request is a failure at the peer.
  const Status status = status_of(report.fault);
  act.fail(name, status == Status::flushed ? Status::remote_operation : status);
  complete(act);
  settle(*s);
}

// The peer waits for the end of the message that it refused; of a Write whose Immediate Data alone is left, nothing.
void DatagramEndpoint::cut_short(const Stream& s, Activity& act) {
  assert(!act.closing);
  const SendRequest& r = act.sending.request();
  const bool payload_is_out = act.sending.state() == Sending::State::immediate;
  act.sending.end();
  if (payload_is_out) return;
  act.closing = Activity::Closing{};
  Activity::Closing& closing = *act.closing;
  closing.untagged = r.operation == Operation::send;
  if (closing.untagged && r.immediate) closing.immediate = r.immediate_data;
  closing.head_size = static_cast<std::uint8_t>(emit_payload_header(
      r, ImmediatePlace::beside, s.tx_msn[ddp::kQueueSend], act.sending.offset(), true, MutableOctets(closing.head)));
}

}  // namespace ewarp::rdmap
