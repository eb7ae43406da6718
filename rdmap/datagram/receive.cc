// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Requests of the peer: checks, placement, delivery. What is wrong is reported and only that message fails; what shows
// that the two ends do not agree on the stream ends the association.
#include <algorithm>
#include <cassert>
#include <utility>

#include "rdmap/datagram/stream.h"

namespace ewarp::rdmap {
namespace {

using llp::rd::Lane;
using llp::rd::Take;

// Malformed behind a good CRC, or a contradiction of message numbers: nothing that follows could be trusted.
bool ends_association(const Fault& f) {
  return f == fault::kDdpLocalCatastrophic || f == fault::kDdpTaggedVersion || f == fault::kDdpUntaggedVersion ||
         f == fault::kDdpInvalidQn || f == fault::kDdpMsnRange || f == fault::kDdpInvalidMo ||
         f == fault::kDdpNoBuffer || f == fault::kRdmapUnspecified;
}

bool is_response(Opcode op) {
  return op == Opcode::read_response || op == Opcode::atomic_response || op == Opcode::terminate;
}

Octets payload_of(const llp::rd::Incoming& in, const Segment& seg) {
  return in.segment.subspan(seg.header.size());
}

}  // namespace

Take DatagramEndpoint::deliver(Association& a, const Incoming& in) {
  auto* s = static_cast<Stream*>(a.user);
  if (s == nullptr || activate(*s).abandoned) return Take::violation;
  const Take t = in.lane == Lane::req ? deliver_request(a, *s, in) : deliver_response(*s, in);
  settle(*s);
  return t;
}

Take DatagramEndpoint::deliver_request(Association& a, Stream& s, const Incoming& in) {
  Activity& act = *s.activity;
  if (const auto f = parse_segment(in.segment, in.octets, true, segment_)) {
    if (ends_association(*f)) return Take::violation;
    return refuse(a, s, act, *f, in);
  }
  // The immediate of a Send stands beside each of its segments, and nowhere else.
  if (in.immediate && (!is_send(segment_.opcode) || invalidates(segment_.opcode))) return Take::violation;
  if (is_response(segment_.opcode)) return Take::violation;
  if (segment_.opcode == Opcode::send_immediate) return refuse(a, s, act, fault::kRdmapOpcode, in);
  if (segment_.is_tagged()) return act.receive ? Take::violation : deliver_write(a, s, act, in);
  if (const auto f = check_queue(act.queues, segment_)) return refuse(a, s, act, *f, in);
  // The segments of a message are neighbours in their lane.
  const bool send = segment_.untagged.qn == ddp::kQueueSend;
  if (act.write_open || (act.receive && !send)) return Take::violation;
  if (act.queues.check_offset(segment_.untagged, segment_.payload)) return Take::violation;
  if (send) return deliver_send(a, s, act, in);
  if (!segment_.last) return Take::violation;  // these messages are one segment (RFC 5040 section 4.2)
  s.write_octets = 0;
  if (act.answers.size() - act.answers_taken >= a.ird()) return Take::violation;
  const Take t = segment_.opcode == Opcode::read_request ? deliver_read(a, s, act, in) : deliver_atomic(a, s, act, in);
  if (t != Take::accepted) return t;
  act.queues.advance(segment_.untagged, segment_.payload);
  ++counters.rx_messages;
  return t;
}

// The message fails alone. A failed untagged one keeps its MSN; a receive that was taken for it ends.
Take DatagramEndpoint::refuse(const Association& a, Stream& s, Activity& act, const Fault& f, const Incoming& in,
                              const ReadRequest* read) {
  if (ends_association(f)) return Take::violation;
  if (segment_.is_tagged()) {
    if (act.receive) return Take::violation;
    s.write_octets = kWriteFailed;
    act.write_open = false;
  } else {
    if (act.write_open || act.queues.check_queue(segment_.untagged)) return Take::violation;
    if (act.receive && segment_.untagged.qn != ddp::kQueueSend) return Take::violation;
    act.queues.skip(segment_.untagged.qn);
    s.write_octets = 0;
    if (act.receive) end_receive(a, act, Received{.status = Status::flushed});
  }
  report(act, in.psn, terminate_about(f, &segment_, read));
  return Take::bad;
}

void DatagramEndpoint::report(Activity& act, std::uint32_t psn, const Terminate& message) {
  const std::vector<std::byte> octets = message.emit();
  PeersFault r;
  assert(octets.size() <= r.octets.size());
  r.size = static_cast<std::uint8_t>(octets.size());
  std::copy(octets.begin(), octets.end(), r.octets.begin());
  act.answers.push_back({r, psn, 0});
}

void DatagramEndpoint::end_receive(const Association& a, Activity& act, const Received& received) {
  assert(act.receive.has_value());
  const DatagramConsumer::Receive receive = *act.receive;
  act.receive.reset();
  let_go_receive(a, act);
  consumer_.receive_done(receive, a.key(), received);
}

// An open message has its receive for as long as its sender likes to continue it. So one source gets no more than three
// quarters of the receives in that way, and one if there is only one.
bool DatagramEndpoint::may_hold(const Association& a) const {
  const std::size_t posted = consumer_.receives();
  if (posted == 0) return true;  // take_receive() says so, and the association is told when one is posted
  const std::size_t all = posted + open_.total;
  return open_.by_source[open_.slot(a.key())] < std::max<std::size_t>(1, all - (all + 3) / 4);
}

void DatagramEndpoint::hold_receive(const Association& a, Activity& act) {
  act.holds = true;
  ++open_.by_source[open_.slot(a.key())];
  ++open_.total;
}

void DatagramEndpoint::let_go_receive(const Association& a, Activity& act) {
  if (!std::exchange(act.holds, false)) return;
  assert(open_.total > 0);
  --open_.by_source[open_.slot(a.key())];
  --open_.total;
}

// Not by the fault: on a tagged segment a missing right is an invalid STag, too (ddp/access.h).
bool DatagramEndpoint::names_nothing(std::uint32_t stag, std::uint64_t to, std::uint64_t n, RemoteRight right) {
  llp::Extent unused;
  const ddp::Verdict v = consumer_.resolve(stag, to, n, right, unused);
  return v == ddp::Verdict::invalid_stag || v == ddp::Verdict::not_associated;
}

// True: it was one too many. The same STag again is a request that was under way, and tells a guesser nothing.
bool DatagramEndpoint::strike(Association& a, std::uint32_t stag) {
  if (wrong_of_ == &a && stag == wrong_stag_) return false;
  wrong_of_ = &a;
  wrong_stag_ = stag;
  ++counters.wrong_stags;
  return a.strike() >= kMostWrongStags;
}

Take DatagramEndpoint::deliver_write(Association& a, Stream& s, Activity& act, const Incoming& in) {
  if (!in.placed) {
    auto f = check_write(consumer_, segment_);
    if (!f && !rdmap::place(consumer_, segment_.target, payload_of(in, segment_))) f = fault::kDdpInvalidStag;
    if (f) {
      const ddp::TaggedHeader& h = segment_.tagged;
      const bool wrong = names_nothing(h.stag, h.offset, segment_.payload, RemoteRight::write);
      if (wrong && strike(a, h.stag)) return Take::violation;
      return refuse(a, s, act, *f, in);
    }
  }
  s.write_octets = (act.write_open ? s.write_octets : 0) + static_cast<std::uint32_t>(segment_.payload);
  act.write_open = !segment_.last;
  ++counters.rx_write_segments;
  if (segment_.last) ++counters.rx_messages;
  return Take::accepted;
}

Take DatagramEndpoint::deliver_send(Association& a, Stream& s, Activity& act, const Incoming& in) {
  if (is_immediate(segment_.opcode)) {
    if (check_immediate(act.queues, segment_)) return Take::violation;
    if (s.write_octets == kWriteFailed) {  // the peer numbered it before it knew
      s.write_octets = 0;
      act.queues.advance(segment_.untagged, segment_.payload);
      return Take::accepted;
    }
  }
  if (!act.receive) {
    // Its sender asks again: no other receive has to be posted.
    if (!segment_.last && !may_hold(a)) return Take::no_receive;
    act.receive = consumer_.take_receive();
    if (!act.receive) {
      if (!act.refused) refused_.push_back(&a);
      act.refused = true;
      return Take::no_receive;
    }
    act.receive_immediate = in.immediate;
    if (!segment_.last) hold_receive(a, act);
  } else if (in.immediate != act.receive_immediate) {
    return Take::violation;
  }
  Status status = Status::flushed;
  const auto f = place_send(act, payload_of(in, segment_), &status);
  if (f) {
    end_receive(a, act, Received{.status = status});
    return refuse(a, s, act, *f, in);
  }
  return segment_.last ? finish_send(a, s, act, in) : advance_send(s, act);
}

// *status: how the receive ends if this fails.
std::optional<Fault> DatagramEndpoint::place_send(Activity& act, Octets payload, Status* status) {
  if (is_immediate(segment_.opcode)) return {};
  if (std::uint64_t{segment_.untagged.mo} + payload.size() > consumer_.receive_capacity(*act.receive)) {
    *status = Status::local_length;
    return fault::kDdpTooLong;
  }
  if (payload.empty()) return {};
  *status = Status::local_protection;
  if (consumer_.receive_memory(*act.receive, segment_.untagged.mo, payload.size(), segment_.target) ==
          Status::success &&
      rdmap::place(consumer_, segment_.target, payload))
    return {};
  return fault::kRdmapStreamCatastrophic;
}

Take DatagramEndpoint::advance_send(Stream& s, Activity& act) {
  s.write_octets = 0;
  act.queues.advance(segment_.untagged, segment_.payload);
  return Take::accepted;
}

Take DatagramEndpoint::finish_send(Association& a, Stream& s, Activity& act, const Incoming& in) {
  Received received = received_from(segment_, payload_of(in, segment_));
  if (in.immediate) {
    received.immediate = true;
    received.immediate_data = *in.immediate;
  }
  // Verbs reports what was written, not the 8 octets.
  if (received.by_write) received.length = std::exchange(s.write_octets, 0);
  const ddp::Verdict v = received.invalidated ? consumer_.invalidate(received.invalidated_stag) : ddp::Verdict::ok;
  if (v != ddp::Verdict::ok) {
    received.status = Status::flushed;
    end_receive(a, act, received);
    const bool wrong = v == ddp::Verdict::invalid_stag || v == ddp::Verdict::not_associated;
    if (wrong && strike(a, received.invalidated_stag)) return Take::violation;
    return refuse(a, s, act, fault::kRdmapCannotInvalidate, in);
  }
  advance_send(s, act);
  ++counters.rx_messages;
  ++counters.rx_sends;
  end_receive(a, act, received);
  return Take::accepted;
}

Take DatagramEndpoint::deliver_read(Association& a, Stream& s, Activity& act, const Incoming& in) {
  const auto parsed = ReadRequest::parse(payload_of(in, segment_));
  if (!parsed.ok()) return Take::violation;
  ++counters.rx_reads;
  llp::Extent source;
  if (const auto f = check_source(consumer_, parsed.value(), source)) {
    const ReadRequest& r = parsed.value();
    const bool wrong = names_nothing(r.source_stag, r.source_to, r.length, RemoteRight::read);
    if (wrong && strike(a, r.source_stag)) return Take::violation;
    return refuse(a, s, act, *f, in, &r);
  }
  act.answers.push_back({PeersRead{parsed.value()}, in.psn, segment_.untagged.msn});
  return Take::accepted;
}

Take DatagramEndpoint::deliver_atomic(Association& a, Stream& s, Activity& act, const Incoming& in) {
  const auto parsed = AtomicRequest::parse(payload_of(in, segment_));
  if (!parsed.ok()) return Take::violation;
  ++counters.rx_atomics;
  std::optional<Fault> f = check_atomic(consumer_, parsed.value());
  if ((a.options() & llp::rd::option::kAtomics) == 0) f = fault::kRdmapOpcode;
  if (f) {
    const AtomicRequest& r = parsed.value();
    const bool wrong = names_nothing(r.stag, r.to, kAtomicOctets, RemoteRight::atomic);
    if (wrong && strike(a, r.stag)) return Take::violation;
    return refuse(a, s, act, *f, in);
  }
  act.answers.push_back({parsed.value(), in.psn, segment_.untagged.msn});
  return Take::accepted;
}

// A tagged segment ahead of its turn. It is delivered in its turn all the same, and only then counts. A wrong STag is
// not answered here, so a peer that has named one has nothing more placed before its turn.
bool DatagramEndpoint::place(Association& a, const Incoming& in) {
  const auto* s = static_cast<const Stream*>(a.user);
  if (s == nullptr || (s->activity != nullptr && s->activity->abandoned) || in.immediate) return false;
  if (parse_segment(in.segment, in.octets, true, segment_) || !segment_.is_tagged() || segment_.payload == 0)
    return false;
  const bool good = in.lane == Lane::rsp ? s->activity != nullptr && place_response(*s->activity, in)
                                         : segment_.opcode == Opcode::write && place_write(a, in);
  counters.placed_ahead += good;
  return good;
}

bool DatagramEndpoint::place_write(Association& a, const Incoming& in) {
  if (a.strikes() > 0) return false;
  if (!check_write(consumer_, segment_)) return rdmap::place(consumer_, segment_.target, payload_of(in, segment_));
  const ddp::TaggedHeader& h = segment_.tagged;
  if (names_nothing(h.stag, h.offset, segment_.payload, RemoteRight::write)) strike(a, h.stag);
  return false;
}

}  // namespace ewarp::rdmap
