// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The transmit side of an RDMAP stream: requests, Read Responses and the Terminate become FPDUs (RFC 5040 section 5).
#include <algorithm>
#include <cassert>
#include <cstring>

#include "ddp/segment.h"
#include "rdmap/endpoint.h"
#include "rdmap/lead.h"
#include "rdmap/message.h"

namespace ewarp::rdmap {
namespace {

using ddp::TaggedHeader;
using ddp::UntaggedHeader;

// Up to here a Read Response is copied: its pages need not be probed then. With a CRC all of it is, because its source
// may change while it is sent.
constexpr std::size_t kCopyResponse = 4 * 1024;
// How far ahead the pages of a Read Response's source are probed.
constexpr std::uint64_t kProbe = 1024 * 1024;

}  // namespace

bool Endpoint::fits(const llp::Gather& out, std::size_t header, std::size_t payload, std::size_t pieces) const {
  const std::size_t ulpdu = header + payload;
  return out.has_room(framer_.vectors_needed(ulpdu, pieces), framer_.arena_needed(header, ulpdu), pieces);
}

// False: the payload's pages are gone, which only a CRC can tell.
bool Endpoint::frame(llp::Gather& out, Octets header, std::span<const llp::Extent> payload) {
  const std::size_t before = out.octets();
  const bool whole = framer_.frame(out, header, payload);
  unacknowledged_.produced(out.octets() - before);
  return whole;
}

void Endpoint::transmit(llp::Gather& out, std::size_t budget) {
  while (out.octets() < budget) {
    if (own_terminate_.wanted()) {
      transmit_terminate(out);
      return;
    }
    if (fault() || terminated_ || !opening_.may_send()) return;
    if (!(opening_.rtr_due() ? transmit_rtr(out) : transmit_message(out))) return;
  }
}

bool Endpoint::transmit_message(llp::Gather& out) {
  switch (sending_.state()) {
    case Sending::State::request:
      return continue_request(out, nullptr);
    case Sending::State::immediate:
      return send_immediate(out);
    case Sending::State::response:
      return continue_response(out);
    case Sending::State::nothing:
      break;
  }
  return start_next(out);
}

bool Endpoint::wants_transmit() const {
  if (own_terminate_.wanted()) return true;
  if (fault() || terminated_ || !opening_.may_send()) return false;
  if (opening_.rtr_due() || !sending_.idle() || !inbound_.empty()) return true;
  const SendRequest* next = consumer_.next_send();
  return next != nullptr && outstanding_.allow(*next);
}

bool Endpoint::transmit_terminate(llp::Gather& out) {
  std::array<std::byte, kLargestHead> ulpdu;
  if (!fits(out, ulpdu.size(), 0, 0)) return false;
  frame(out, Octets(ulpdu).first(emit_terminate(own_terminate_.message().emit(), 1, ulpdu)), {});
  own_terminate_.produced();
  ++counters.terminates_sent;
  ++counters.tx_messages;
  return true;
}

// RFC 6581 section 9.2: the initiator's first FPDU, empty and invisible to both consumers; or what repeats it.
bool Endpoint::transmit_rtr(llp::Gather& out) {
  std::array<std::byte, kReadRequestHead> ulpdu;
  if (!fits(out, ulpdu.size(), 0, 0)) return false;
  opening_.rtr_sent();
  std::size_t size = UntaggedHeader::kSize;
  if (opening_.repeats() || (params_.rtr & mpa::kRtrWrite)) {
    TaggedHeader{true, control(Opcode::write), 0, 0}.emit(std::span(ulpdu).first<TaggedHeader::kSize>());
    size = TaggedHeader::kSize;
  } else if (params_.rtr & mpa::kRtrRead) {
    const std::uint32_t sink = outstanding_.push(nullptr, tx_msn_[ddp::kQueueRequest]);
    size = emit_read_request({sink, 0, 0, 0, 0}, tx_msn_[ddp::kQueueRequest]++, ulpdu);
  } else {
    UntaggedHeader{true, control(Opcode::send), 0, ddp::kQueueSend, tx_msn_[0]++, 0}.emit(
        std::span(ulpdu).first<UntaggedHeader::kSize>());
  }
  frame(out, Octets(ulpdu).first(size), {});
  return true;
}

bool Endpoint::start_next(llp::Gather& out) {
  SendRequest* next = consumer_.next_send();
  if (next != nullptr && !outstanding_.allow(*next)) next = nullptr;
  if (!inbound_.empty() && (turn_ || next == nullptr)) {
    turn_ = false;
    sending_.begin_response();
    return continue_response(out);
  }
  if (next == nullptr) return false;
  turn_ = true;
  return start_request(out, *next);
}

// Octets in front of a Send or Write that go in short segments (lead.h). A message of one segment leaves in one segment
// of TCP, behind which the kernel does not begin a page anew. What waits before a message stands at that begin instead.
std::uint64_t Endpoint::lead_of(const llp::Gather& out, const SendRequest& request, const ExtentList& pieces) const {
  const std::size_t header = payload_header(request);
  const bool several = request.length > mulpdu_ - header;
  if (!leads_ || !several || !out.empty() || mulpdu_ < kLeadMulpdu || framer_.markers()) return 0;
  return lead_octets(reinterpret_cast<std::uintptr_t>(pieces.front().address), header);
}

// A request that cannot be sent fails before an octet of it is on the wire.
void Endpoint::local_failure(SendRequest& request, Status status) {
  consumer_.send_started();
  consumer_.send_done(request, status);
  fail(fault::kRdmapLocalCatastrophic);
}

bool Endpoint::start_request(llp::Gather& out, SendRequest& request) {
  // The owner may have taken it before it was known what the peer consents to (docs/protocol/extensions.md section 2).
  if (!params_.extensions && (request.immediate || is_atomic(request.operation))) {
    local_failure(request, Status::remote_invalid);
    return true;
  }
  ExtentList pieces;
  if (request.length > 0) {
    const Status s = consumer_.request_memory(request, 0, request.length, pieces);
    if (s != Status::success) {
      local_failure(request, s);
      return true;
    }
  }
  if (request.operation == Operation::read) return start_read(out, request);
  if (is_atomic(request.operation)) return start_atomic(out, request);
  sending_.begin(request, lead_of(out, request, pieces));
  if (continue_request(out, &pieces)) return true;
  sending_.end();
  return false;
}

// How many of the pieces could be held, from the first on.
std::size_t Endpoint::hold(std::span<const llp::Extent> payload) {
  std::size_t held = 0;
  while (held < payload.size() && consumer_.hold(payload[held])) ++held;
  return held;
}

void Endpoint::let_go(std::span<const llp::Extent> held) {
  for (const llp::Extent& e : held) consumer_.let_go(e);
}

// Without a CRC nothing is read before the kernel does. A CRC is computed over the memory as it lies, which its owner
// may have taken back or unmapped. False: it has.
bool Endpoint::frame_in_place(llp::Gather& out, Octets header, std::span<const llp::Extent> payload) {
  if (!framer_.crc()) return frame(out, header, payload);
  const std::size_t held = hold(payload);
  const bool good = held == payload.size() && frame(out, header, payload);
  let_go(payload.first(held));
  return good;
}

// False: its owner has taken it back or unmapped it.
bool Endpoint::frame_copied(llp::Gather& out, Octets header, std::span<const llp::Extent> payload) {
  const std::size_t held = hold(payload), before = out.octets();
  const bool good = held == payload.size() && framer_.frame_copied(out, header, payload);
  let_go(payload.first(held));
  unacknowledged_.produced(out.octets() - before);
  return good;
}

// The one that is being sent cannot go on. Nothing of it counts as sent if its first segment was not. Otherwise its
// first octets may be waiting to be written out of its memory, which is its owner's again when it has ended.
void Endpoint::fail_current(Status status) {
  SendRequest& request = sending_.request();
  const bool begun = sending_.offset() > 0;
  sending_.end();
  if (begun) {
    unacknowledged_.push(request, status);
    transmitted(0);
  } else {
    consumer_.send_started();
    consumer_.send_done(request, status);
  }
  fail(fault::kRdmapLocalCatastrophic);
}

// checked: the pieces of the whole message, by a check just now; null: there was none.
bool Endpoint::continue_request(llp::Gather& out, const ExtentList* checked) {
  SendRequest& r = sending_.request();
  const std::uint64_t offset = sending_.offset();
  const std::size_t header = payload_header(r);
  const ddp::Cut cut = ddp::cut_with_lead(r.length, offset, mulpdu_, header, sending_.lead(), kLeadPayload);
  ExtentList own;
  const bool whole = checked != nullptr && cut.payload == r.length;
  if (!whole && cut.payload > 0) {
    const Status s = consumer_.request_memory(r, offset, cut.payload, own);
    if (s != Status::success) {  // deregistered between two segments
      fail_current(s);
      return true;
    }
  }
  const ExtentList& pieces = whole ? *checked : own;
  const bool copies = cut.payload <= kCopyPayload || r.length <= kCopyMessage;
  if (!fits(out, copies ? header + cut.payload : header, copies ? 0 : cut.payload, copies ? 0 : pieces.count))
    return false;
  std::array<std::byte, UntaggedHeader::kSize> head;
  emit_payload_header(r, ImmediatePlace::header, tx_msn_[0], offset, cut.last, head);
  if (params_.extensions && offset >= sending_.lead()) ddp::set_ahead(head, ddp::alike_behind(cut, r.length));
  const Octets begin = Octets(head).first(header);
  if (!(copies ? frame_copied(out, begin, pieces.all()) : frame_in_place(out, begin, pieces.all()))) {
    fail_current(Status::local_protection);
    return true;
  }
  if (offset == 0) consumer_.send_started();
  sending_.advance(cut.payload);
  if (!cut.last) return true;
  ++counters.tx_messages;
  if (r.operation == Operation::send) {
    ++tx_msn_[0];
    ++counters.tx_sends;
  } else {
    ++counters.tx_writes;
  }
  sending_.payload_done();
  if (sending_.idle()) unacknowledged_.push(r);
  return true;
}

// Directly behind its Write, not even a response between them: the peer takes the length it reports from the message
// before (docs/protocol/extensions.md section 4). That is also why the Write is sent when it is empty.
bool Endpoint::send_immediate(llp::Gather& out) {
  std::array<std::byte, kImmediateHead> ulpdu;
  if (!fits(out, ulpdu.size(), 0, 0)) return false;
  SendRequest& r = sending_.request();
  emit_immediate(r, tx_msn_[0]++, ulpdu);
  frame(out, ulpdu, {});
  sending_.end();
  ++counters.tx_messages;
  unacknowledged_.push(r);
  return true;
}

bool Endpoint::start_read(llp::Gather& out, SendRequest& r) {
  std::array<std::byte, kReadRequestHead> ulpdu;
  if (!fits(out, ulpdu.size(), 0, 0)) return false;
  const std::uint32_t sink = outstanding_.push(&r, tx_msn_[ddp::kQueueRequest]);
  emit_read_request({sink, 0, r.length, r.remote_stag, r.remote_to}, tx_msn_[ddp::kQueueRequest]++, ulpdu);
  frame(out, ulpdu, {});
  consumer_.send_started();
  ++counters.tx_messages;
  ++counters.tx_reads;
  return true;
}

bool Endpoint::start_atomic(llp::Gather& out, SendRequest& r) {
  std::array<std::byte, kAtomicRequestHead> ulpdu;
  if (!fits(out, ulpdu.size(), 0, 0)) return false;
  const std::uint32_t id = outstanding_.push(&r, tx_msn_[ddp::kQueueRequest]);
  emit_atomic_request(r, id, tx_msn_[ddp::kQueueRequest]++, ulpdu);
  frame(out, ulpdu, {});
  consumer_.send_started();
  ++counters.tx_messages;
  return true;
}

// A request that can no longer be served.
void Endpoint::response_failed(const Fault& f) {
  const InboundRequest& read = inbound_.oldest();
  sending_.end();
  own_terminate_.report(f, read.atomic ? terminate_about_atomic(f, read.msn)
                                       : terminate_about_request(f, read.msn, read.request, read.sent));
}

// The next `octets` of a Read Response's source are gone.
void Endpoint::response_lost(std::uint64_t octets) {
  const InboundRequest& read = inbound_.oldest();
  const ReadRequest& q = read.request;
  response_failed(lost_memory_fault(consumer_, q.source_stag, q.source_to + read.sent, octets, RemoteRight::read));
}

bool Endpoint::continue_response(llp::Gather& out) {
  InboundRequest& read = inbound_.oldest();
  assert(sending_.state() == Sending::State::response);
  if (read.atomic) return answer_atomic(out);
  const ReadRequest& q = read.request;
  const ddp::Cut cut = ddp::cut(q.length, read.sent, mulpdu_, TaggedHeader::kSize);
  const bool copies = cut.payload > 0 && (framer_.crc() || q.length <= kCopyResponse);
  if (!fits(out, copies ? TaggedHeader::kSize + cut.payload : TaggedHeader::kSize, copies ? 0 : cut.payload,
            copies ? 0 : 1))
    return false;
  llp::Extent source;
  if (cut.payload > 0) {
    const auto verdict =
        consumer_.resolve(q.source_stag, q.source_to + read.sent, cut.payload, RemoteRight::read, source);
    if (verdict != ddp::Verdict::ok) {
      response_lost(cut.payload);
      return true;
    }
  }
  std::array<std::byte, TaggedHeader::kSize> header;
  emit_read_response_header(q, read.sent, cut.last, header);
  if (params_.extensions) ddp::set_ahead(header, ddp::alike_behind(cut, q.length));
  if (copies) {
    if (!frame_copied(out, header, std::span(&source, 1))) {
      response_lost(cut.payload);
      return true;
    }
  } else {
    // In place: nothing can be taken back once the header is on the wire, so the pages are probed before.
    if (read.sent + cut.payload > read.probed) {
      llp::Extent ahead = source;
      ahead.length = std::min<std::uint64_t>(q.length - read.sent, std::max<std::uint64_t>(kProbe, cut.payload));
      if (!consumer_.readable(ahead)) {
        response_lost(ahead.length);
        return true;
      }
      read.probed = read.sent + ahead.length;
    }
    frame(out, header, std::span(&source, cut.payload > 0 ? 1 : 0));
  }
  read.sent += cut.payload;
  if (cut.last) {
    ++counters.tx_messages;
    inbound_.pop();
    sending_.end();
  }
  return true;
}

// Here, not on arrival: the next one is not executed before this one's response was made (RFC 7306 section 5).
bool Endpoint::answer_atomic(llp::Gather& out) {
  std::array<std::byte, kAtomicResponseHead> ulpdu;
  if (!fits(out, ulpdu.size(), 0, 0)) return false;  // it cannot be executed twice
  const AtomicRequest& a = *inbound_.oldest().atomic;
  llp::Extent target;
  AtomicResponse response{a.request_id, 0};
  if (consumer_.resolve(a.stag, a.to, kAtomicOctets, RemoteRight::atomic, target) != ddp::Verdict::ok ||
      !consumer_.atomic(target, a, &response.original)) {
    response_failed(lost_memory_fault(consumer_, a.stag, a.to, kAtomicOctets, RemoteRight::atomic));
    return true;
  }
  emit_atomic_response(response, tx_msn_[ddp::kQueueAtomicResponse]++, ulpdu);
  frame(out, ulpdu, {});
  ++counters.tx_messages;
  inbound_.pop();
  sending_.end();
  return true;
}

void Endpoint::transmitted(std::size_t octets) {
  unacknowledged_.taken(octets);
  for (auto done = unacknowledged_.pop_taken(); done.request != nullptr; done = unacknowledged_.pop_taken())
    consumer_.send_done(*done.request, done.status);
}

}  // namespace ewarp::rdmap
