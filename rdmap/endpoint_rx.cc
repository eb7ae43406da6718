// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The receive side of an RDMAP stream: the checks of RFC 5041 section 7 and RFC 5040 section 7, placement, delivery.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "rdmap/endpoint.h"

namespace ewarp::rdmap {
namespace {

// Behind a payload of this length so little is read that the next one can be; to copy less out of staging costs less
// than a second system call.
constexpr std::size_t kBulkPayload = 40 * 1024;

bool takes_receive(const SendRequest& r) {
  return r.operation == Operation::send || r.immediate;
}

// Whether a DDP header that came back is that of a segment of this Write, or of this Send or Immediate with this MSN.
bool is_about(Octets header, const SendRequest& r, std::uint32_t msn) {
  if (ddp::is_tagged(header)) {
    const auto h = ddp::TaggedHeader::parse(header);
    return h.ok() && r.operation == Operation::write &&
           opcode_of(h.value().ulp) == static_cast<unsigned>(Opcode::write) && h.value().stag == r.remote_stag &&
           h.value().offset - r.remote_to < r.length;
  }
  const auto h = ddp::UntaggedHeader::parse(header);
  return h.ok() && takes_receive(r) && h.value().qn == ddp::kQueueSend && h.value().msn == msn;
}

}  // namespace

std::size_t Endpoint::receive(Octets staged) {
  std::size_t taken = 0;
  for (;;) {
    if (fault() || terminated_) return staged.size();
    assert(taken <= staged.size());
    const Octets rest = staged.subspan(taken);
    if (!direct_.idle()) {
      if (direct_.left() > 0 && !rest.empty()) {
        taken += direct_from_staging(rest);
        continue;
      }
      if (!finish_direct(rest, taken)) return taken;
      continue;
    }
    stalled_ = must_wait(rest);
    if (stalled_) return taken;
    const auto next = deframer_.next(rest);
    if (!next.ok()) {
      if (next.error() == fault::kMpaCrc) ++counters.crc_errors;
      receive_fault(next.error(), nullptr);
      continue;
    }
    if (!next.value()) {
      if (!try_direct(rest, taken)) return taken;
      continue;
    }
    taken += next.value()->consumed;
    handle_ulpdu(next.value()->ulpdu);
  }
}

// Looks at a header that no CRC has vouched for yet: all it can cause is a bounded wait.
bool Endpoint::must_wait(Octets rest) const {
  constexpr std::size_t kHeader = mpa::kLengthField + ddp::UntaggedHeader::kSize;
  if (!patient_ || receive_open_ || deframer_.markers() || rest.size() < kHeader) return false;
  const Octets head = rest.subspan(mpa::kLengthField);
  if (ddp::is_tagged(head) || opening_.awaits_first()) return false;
  const auto h = ddp::UntaggedHeader::parse(head);
  return h.ok() && h.value().qn == ddp::kQueueSend && h.value().mo == 0 && !consumer_.has_receive();
}

void Endpoint::handle_ulpdu(Octets ulpdu) {
  auto f = begin_segment(ulpdu, ulpdu.size(), segment_);
  if (!f) {
    const Octets payload = ulpdu.subspan(segment_.header.size());
    note_bulk(segment_);
    if (opening_.awaits_first() && params_.peer_to_peer && params_.rtr != 0 && !is_rtr(segment_, payload))
      f = fault::kMpaNoRtr;
    else if (!place(consumer_, segment_.target, payload))
      f = place_failed(segment_);
    else
      f = finish_segment(segment_, payload);
    if (!f && !terminated_) opening_.received();
  }
  if (f) receive_fault(*f, &segment_);
}

// RFC 6581 section 9.2: a message without payload, of an agreed kind. Or the Terminate of an initiator that could not
// agree (section 8), which must not be answered with another.
bool Endpoint::is_rtr(const Segment& seg, Octets payload) const {
  if (seg.opcode == Opcode::terminate) return true;
  if (seg.opcode == Opcode::write) return (params_.rtr & mpa::kRtrWrite) != 0 && payload.empty() && seg.last;
  if (is_send(seg.opcode)) return (params_.rtr & mpa::kRtrSend) != 0 && payload.empty() && seg.last;
  if (seg.opcode != Opcode::read_request || (params_.rtr & mpa::kRtrRead) == 0) return false;
  const auto request = ReadRequest::parse(payload);
  return request.ok() && request.value().length == 0;
}

// Everything that can be said from the header and the length; resolves where the payload goes. Order of the checks:
// docs/design/ddp.md, Order of checks. head: at least the DDP header, or the whole ULPDU if that is shorter.
std::optional<Fault> Endpoint::begin_segment(Octets head, std::size_t ulpdu, Segment& seg) {
  if (const auto f = parse_segment(head, ulpdu, params_.extensions, seg)) return f;
  return seg.is_tagged() ? begin_tagged(seg) : begin_untagged(seg);
}

std::optional<Fault> Endpoint::begin_tagged(Segment& seg) {
  if (seg.opcode == Opcode::read_response) return begin_read_response(seg);
  return check_write(consumer_, seg);
}

std::optional<Fault> Endpoint::begin_read_response(Segment& seg) {
  seg.kind = Kind::read_response;
  if (outstanding_.empty()) return fault::kRdmapOpcode;
  const OutstandingRequest& read = outstanding_.oldest();
  if (read.is_atomic()) return bad_response(fault::kRdmapStreamCatastrophic);
  if (const auto f = check_read_response(seg, read.sink_stag, read.received, read.length)) return bad_response(*f);
  if (seg.payload == 0 || read.request == nullptr) return {};
  const Status s = consumer_.request_memory(*read.request, read.received, seg.payload, seg.target);
  if (s == Status::success) return {};
  return place_failed(seg);
}

// The oldest request's answer is not one.
Fault Endpoint::bad_response(const Fault& f) {
  end_oldest(Status::bad_response);
  return f;
}

void Endpoint::end_oldest(Status status) {
  SendRequest* request = outstanding_.pop();
  if (request != nullptr) consumer_.send_done(*request, status);
}

std::optional<Fault> Endpoint::begin_untagged(Segment& seg) {
  const ddp::UntaggedHeader& h = seg.untagged;
  if (const auto f = check_queue(queues_, seg)) return f;
  if (h.qn == ddp::kQueueSend) return begin_send(seg);
  if (const auto f = queues_.check_offset(h, seg.payload)) return f;
  return {};
}

std::optional<Fault> Endpoint::begin_send(Segment& seg) {
  const ddp::UntaggedHeader& h = seg.untagged;
  seg.kind = Kind::send;
  // An RTR by Send uses MSN 1 and nothing of the consumer's (docs/protocol/start-up.md section 4).
  if (opening_.awaits_first() && params_.peer_to_peer && (params_.rtr & mpa::kRtrSend) != 0 && seg.payload == 0)
    return queues_.check_offset(h, 0);
  if (drops_sends_) return queues_.check_offset(h, seg.payload);
  if (!receive_open_) {
    if (!consumer_.take_receive()) return fault::kDdpNoBuffer;
    receive_open_ = true;
  }
  if (const auto f = queues_.check_offset(h, seg.payload)) return f;
  if (is_immediate(seg.opcode)) return check_immediate(queues_, seg);
  if (std::uint64_t{h.mo} + seg.payload > consumer_.receive_capacity()) {
    receive_open_ = false;
    consumer_.receive_done(Received{.status = Status::local_length});
    return fault::kDdpTooLong;
  }
  if (seg.payload == 0) return {};
  if (consumer_.receive_memory(h.mo, seg.payload, seg.target) == Status::success) return {};
  return place_failed(seg);
}

// The target is no longer ours to write: its region is gone or its pages are. The request it belongs to fails.
std::optional<Fault> Endpoint::place_failed(const Segment& seg) {
  switch (seg.kind) {
    case Kind::write:
      return fault::kDdpInvalidStag;
    case Kind::send:
      assert(receive_open_);
      receive_open_ = false;
      consumer_.receive_done(Received{.status = Status::local_protection});
      break;
    case Kind::read_response:
      end_oldest(Status::local_protection);
      break;
    case Kind::small:
      break;
  }
  return fault::kDdpLocalCatastrophic;
}

void Endpoint::note_write(const Segment& seg) {
  if (seg.kind == Kind::write) {
    write_octets_ = (write_open_ ? write_octets_ : 0) + static_cast<std::uint32_t>(seg.payload);
    write_open_ = !seg.last;
  } else if (!is_immediate(seg.opcode)) {
    write_octets_ = 0;
  }
}

std::optional<Fault> Endpoint::finish_segment(Segment& seg, Octets payload) {
  note_write(seg);
  switch (seg.kind) {
    case Kind::send:
      return finish_send(seg, payload);
    case Kind::write:
      ++counters.rx_write_segments;
      if (seg.last) ++counters.rx_messages;
      return {};
    case Kind::read_response:
      finish_read_response(seg);
      return {};
    case Kind::small:
      break;
  }
  if (!seg.last) return fault::kRdmapUnspecified;  // these messages are one segment (RFC 5040 section 4.2)
  queues_.advance(seg.untagged, seg.payload);
  ++counters.rx_messages;
  switch (seg.opcode) {
    case Opcode::read_request:
      return on_read_request(seg, payload);
    case Opcode::atomic_request:
      return on_atomic_request(seg, payload);
    case Opcode::atomic_response:
      return on_atomic_response(seg, payload);
    default:
      assert(seg.opcode == Opcode::terminate);
      on_terminate(payload);
      return {};
  }
}

std::optional<Fault> Endpoint::finish_send(Segment& seg, Octets payload) {
  const ddp::UntaggedHeader& h = seg.untagged;
  queues_.advance(h, seg.payload);
  if (!seg.last || !receive_open_) return {};
  receive_open_ = false;
  patient_ = true;
  ++counters.rx_messages;
  ++counters.rx_sends;
  Received received = received_from(seg, payload);
  // Verbs reports what was written, not the 8 octets.
  if (received.by_write) received.length = std::exchange(write_octets_, 0);
  if (received.invalidated && consumer_.invalidate(h.ulp_word) != ddp::Verdict::ok) {
    received.status = Status::flushed;
    consumer_.receive_done(received);
    return fault::kRdmapCannotInvalidate;
  }
  consumer_.receive_done(received);
  return {};
}

void Endpoint::finish_read_response(Segment& seg) {
  outstanding_.received(seg.payload);
  if (!seg.last) return;
  ++counters.rx_messages;
  end_oldest(Status::success);
}

std::optional<Fault> Endpoint::on_read_request(Segment& seg, Octets payload) {
  const auto parsed = ReadRequest::parse(payload);
  if (!parsed.ok()) return parsed.error();
  InboundRequest read;
  read.request = parsed.value();
  read.msn = seg.untagged.msn;
  // The RTR is served even with an IRD of 0 (docs/protocol/start-up.md section 4).
  if (inbound_.full() && !(opening_.awaits_first() && read.request.length == 0)) return fault::kDdpNoBuffer;
  ++counters.rx_reads;
  llp::Extent source;  // all of it; looked up again when it is sent
  if (const auto f = check_source(consumer_, read.request, source)) {
    receive_fault(*f, &seg, &read.request);
    return {};
  }
  inbound_.push(read);
  return {};
}

// RFC 7306 section 5. Executed when its turn to be answered has come, so after the Reads and atomics before it.
// Terminates about it carry no RDMAP header.
std::optional<Fault> Endpoint::on_atomic_request(Segment& seg, Octets payload) {
  const auto parsed = AtomicRequest::parse(payload);
  if (!parsed.ok()) return parsed.error();
  const AtomicRequest& a = parsed.value();
  if (inbound_.full()) return fault::kDdpNoBuffer;
  if (const auto f = check_atomic(consumer_, a)) return f;
  InboundRequest request;
  request.atomic = a;
  request.msn = seg.untagged.msn;
  inbound_.push(request);
  return {};
}

std::optional<Fault> Endpoint::on_atomic_response(Segment& seg, Octets payload) {
  const auto parsed = AtomicResponse::parse(payload);
  if (!parsed.ok()) return parsed.error();
  if (outstanding_.empty()) return fault::kRdmapOpcode;
  const OutstandingRequest& oldest = outstanding_.oldest();
  if (!oldest.is_atomic() || oldest.sink_stag != parsed.value().request_id)
    return bad_response(fault::kRdmapStreamCatastrophic);
  const auto octets = original_octets(parsed.value());
  const Status s = consumer_.request_memory(*oldest.request, 0, kAtomicOctets, seg.target);
  seg.kind = Kind::read_response;  // place_failed(): the memory is that of the oldest request
  if (s != Status::success || !place(consumer_, seg.target, octets)) return place_failed(seg);
  end_oldest(Status::success);
  return {};
}

// Which of our requests the peer's Terminate is about; null if it cannot be told, or is complete already.
SendRequest* Endpoint::named_by(const Terminate& message) {
  if (SendRequest* request = outstanding_.named_by(message)) return request;
  const Octets header(message.ddp_header);
  if (header.empty()) return nullptr;
  std::uint32_t msn = tx_msn_[ddp::kQueueSend];
  if (sending_.has_request() && is_about(header, sending_.request(), msn)) return &sending_.request();
  for (std::size_t i = unacknowledged_.size(); i-- > 0;) {
    SendRequest& r = unacknowledged_.at(i);
    if (takes_receive(r)) --msn;
    if (is_about(header, r, msn)) return &r;
  }
  return nullptr;
}

void Endpoint::on_terminate(Octets payload) {
  ++counters.terminates_received;
  auto message = Terminate::parse(payload);
  terminated_ = message.ok() ? message.value() : Terminate{fault::kRdmapUnspecified, false, 0, {}, {}, false};
  SendRequest* request = named_by(*terminated_);
  if (request == nullptr) return;
  // The requests before it were answered, or will never be: the consumer flushes them before this one completes. It
  // must not end once more when the kernel takes its last octets.
  unacknowledged_.clear();
  consumer_.send_done(*request, status_of(terminated_->fault));
}

void Endpoint::note_bulk(const Segment& seg) {
  const bool direct = !deframer_.markers() && (!deframer_.crc() || (seg.kind != Kind::write && seg.target.count == 1));
  bulk_ = direct && seg.payload >= kBulkPayload;
}

bool Endpoint::end_of_stream() {
  const bool answering = !outstanding_.empty() && outstanding_.oldest().received > 0;
  return direct_.idle() && !receive_open_ && !write_open_ && !answering;
}

// read: its header goes back, too (RFC 5040 section 4.8).
void Endpoint::receive_fault(const Fault& f, const Segment* seg, const ReadRequest* read) {
  if (!fault()) own_terminate_.report(f, terminate_about(f, seg, read));
}

}  // namespace ewarp::rdmap
