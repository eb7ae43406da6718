// The transmit side of an RDMAP stream: requests, Read Responses and the Terminate become FPDUs (RFC 5040 section 5).
#include <algorithm>
#include <cstring>

#include "ddp/segment.h"
#include "rdmap/endpoint.h"
#include "rdmap/message.h"

namespace ewarp::rdmap {
namespace {

using ddp::TaggedHeader;
using ddp::UntaggedHeader;

// Up to here a payload is copied beside its header: one vector, and no region to hold, is cheaper than gathering.
constexpr std::size_t kCopyPayload = 512;
// A Read Response's source may change while it is sent, so a CRC needs a copy; cut so that several fit in the arena.
constexpr std::size_t kCopyResponse = 16 * 1024;
// How far ahead the pages of a Read Response's source are probed.
constexpr std::uint64_t kProbe = 1024 * 1024;

}  // namespace

Endpoint::Endpoint(Consumer& consumer, const mpa::StreamParams& params, std::size_t mulpdu)
    : consumer_(consumer),
      params_(params),
      mulpdu_(mulpdu),
      framer_(params.crc, params.tx_markers),
      deframer_(params.crc, params.rx_markers),
      queues_(params.extensions ? 4 : 3),
      established_(params.initiator || !params.peer_to_peer),
      rtr_due_(params.initiator && params.peer_to_peer && params.rtr != 0 && !params.terminate),
      copy_(UntaggedHeader::kSize + kCopyResponse) {
  if (params.terminate) {
    fault_ = params.terminate;
    set_terminate(*fault_, nullptr, nullptr);
  }
}

bool Endpoint::fits(const llp::Gather& out, std::size_t header, std::size_t payload, std::size_t pieces) const {
  const std::size_t ulpdu = header + payload;
  return out.has_room(framer_.vectors_needed(ulpdu, pieces), framer_.arena_needed(header, ulpdu), pieces);
}

void Endpoint::frame(llp::Gather& out, Octets header, std::span<const llp::Extent> payload) {
  const std::size_t before = out.octets();
  framer_.frame(out, header, payload);
  produced_ += out.octets() - before;
}

void Endpoint::transmit(llp::Gather& out, std::size_t budget) {
  while (out.octets() < budget) {
    if (terminate_state_ == TerminateState::wanted) {
      transmit_terminate(out);
      return;
    }
    if (fault_ || terminated_ || !may_send()) return;
    bool went = false;
    if (rtr_due_)
      went = transmit_rtr(out);
    else if (current_ == Current::request)
      went = continue_request(out);
    else if (current_ == Current::response)
      went = continue_response(out);
    else
      went = start_next(out);
    if (!went) return;
  }
}

bool Endpoint::wants_transmit() const {
  if (terminate_state_ == TerminateState::wanted) return true;
  if (fault_ || terminated_ || !may_send()) return false;
  if (rtr_due_ || current_ != Current::nothing || !inbound_.empty()) return true;
  const SendRequest* next = consumer_.next_send();
  return next != nullptr && startable(*next);
}

bool Endpoint::transmit_terminate(llp::Gather& out) {
  std::array<std::byte, kLargestHead> ulpdu;
  if (!fits(out, ulpdu.size(), 0, 0)) return false;
  frame(out, Octets(ulpdu).first(emit_terminate(terminate_.emit(), 1, ulpdu)), {});
  terminate_state_ = TerminateState::sent;
  ++counters.terminates_sent;
  ++counters.tx_messages;
  return true;
}

// RFC 6581 section 6: the initiator's first FPDU, empty and invisible to both consumers.
bool Endpoint::transmit_rtr(llp::Gather& out) {
  std::array<std::byte, kReadRequestHead> ulpdu;
  if (!fits(out, ulpdu.size(), 0, 0)) return false;
  rtr_due_ = false;
  std::size_t size = UntaggedHeader::kSize;
  if (params_.rtr & mpa::kRtrWrite) {
    TaggedHeader{true, control(Opcode::write), 0, 0}.emit(std::span(ulpdu).first<TaggedHeader::kSize>());
    size = TaggedHeader::kSize;
  } else if (params_.rtr & mpa::kRtrRead) {
    const std::uint32_t sink = push_outstanding(nullptr, 0);
    size = emit_read_request({sink, 0, 0, 0, 0}, tx_msn_[ddp::kQueueRequest]++, ulpdu);
  } else {
    UntaggedHeader{true, control(Opcode::send), 0, ddp::kQueueSend, tx_msn_[0]++, 0}.emit(
        std::span(ulpdu).first<UntaggedHeader::kSize>());
  }
  frame(out, Octets(ulpdu).first(size), {});
  return true;
}

bool Endpoint::startable(const SendRequest& request) const {
  if (request.fence && !reads_.empty()) return false;
  return !has_response(request.operation) || reads_.size() < params_.ord;
}

bool Endpoint::start_next(llp::Gather& out) {
  SendRequest* next = consumer_.next_send();
  if (next != nullptr && !startable(*next)) next = nullptr;
  if (!inbound_.empty() && (turn_ || next == nullptr)) {
    turn_ = false;
    current_ = Current::response;
    return continue_response(out);
  }
  if (next == nullptr) return false;
  turn_ = true;
  return start_request(out, *next);
}

// A request whose memory is not ours to use fails before an octet of it is on the wire.
void Endpoint::local_failure(SendRequest& request, Status status) {
  consumer_.send_started();
  consumer_.send_done(request, status);
  fail(fault::kRdmapLocalCatastrophic);
}

bool Endpoint::start_request(llp::Gather& out, SendRequest& request) {
  if (request.length > 0) {
    const Status s = consumer_.request_memory(request, 0, request.length, pieces_);
    if (s != Status::success) {
      local_failure(request, s);
      return true;
    }
  }
  if (request.operation == Operation::read) return start_read(out, request);
  if (is_atomic(request.operation)) return start_atomic(out, request);
  current_ = Current::request;
  request_ = &request;
  offset_ = 0;
  if (continue_request(out)) return true;
  current_ = Current::nothing;
  return false;
}

// Without a CRC nothing is read before the kernel does. A CRC is computed over the memory as it lies, which its owner
// may have taken back or unmapped. False: it has.
bool Endpoint::frame_in_place(llp::Gather& out, std::size_t header) {
  std::size_t held = 0;
  if (framer_.crc())
    while (held < pieces_.count && consumer_.hold(pieces_.items[held])) ++held;
  const bool good = !framer_.crc() || held == pieces_.count;
  if (good) frame(out, Octets(copy_).first(header), pieces_.all());
  for (std::size_t i = 0; i < held; ++i) consumer_.let_go(pieces_.items[i]);
  return good;
}

bool Endpoint::continue_request(llp::Gather& out) {
  if (immediate_due_) return finish_with_immediate(out);
  SendRequest& r = *request_;
  const std::size_t header = payload_header(r);
  const ddp::Cut cut = ddp::cut(r.length, offset_, mulpdu_, header);
  // The first segment of a message that fits one already has its pieces from the check at its start.
  if (cut.payload != r.length) {
    pieces_.clear();
    const Status s = consumer_.request_memory(r, offset_, cut.payload, pieces_);
    if (s != Status::success) {  // deregistered between two segments
      current_ = Current::nothing;
      if (offset_ == 0) consumer_.send_started();
      consumer_.send_done(r, s);
      fail(fault::kRdmapLocalCatastrophic);
      return true;
    }
  } else if (cut.payload == 0) {
    pieces_.clear();
  }
  const bool copies = cut.payload <= kCopyPayload;
  if (!fits(out, copies ? header + cut.payload : header, copies ? 0 : cut.payload, copies ? 0 : pieces_.count))
    return false;
  emit_payload_header(r, ImmediatePlace::header, tx_msn_[0], offset_, cut.last, copy_);
  if (copies) {
    std::size_t at = header;
    for (const llp::Extent& e : pieces_.all()) {
      if (!consumer_.copy_out(copy_.data() + at, e)) {
        current_ = Current::nothing;
        if (offset_ == 0) consumer_.send_started();
        consumer_.send_done(r, Status::local_protection);
        fail(fault::kRdmapLocalCatastrophic);
        return true;
      }
      at += e.length;
    }
    frame(out, Octets(copy_).first(at), {});
  } else if (!frame_in_place(out, header)) {
    current_ = Current::nothing;
    if (offset_ == 0) consumer_.send_started();
    consumer_.send_done(r, Status::local_protection);
    fail(fault::kRdmapLocalCatastrophic);
    return true;
  }
  if (offset_ == 0) consumer_.send_started();
  offset_ += cut.payload;
  if (!cut.last) return true;
  ++counters.tx_messages;
  if (r.operation == Operation::send) {
    ++tx_msn_[0];
    ++counters.tx_sends;
  } else {
    ++counters.tx_writes;
    immediate_due_ = r.immediate;
    if (immediate_due_) return true;
  }
  current_ = Current::nothing;
  unacknowledged_.push_back({produced_, &r});
  return true;
}

// Directly behind its Write, not even a response between them: the peer takes the length it reports from the message
// before (rdmap.md section 9.1). That is also why the Write is sent when it is empty.
bool Endpoint::finish_with_immediate(llp::Gather& out) {
  std::array<std::byte, kImmediateHead> ulpdu;
  if (!fits(out, ulpdu.size(), 0, 0)) return false;
  SendRequest& r = *request_;
  emit_immediate(r, tx_msn_[0]++, ulpdu);
  frame(out, ulpdu, {});
  immediate_due_ = false;
  current_ = Current::nothing;
  ++counters.tx_messages;
  unacknowledged_.push_back({produced_, &r});
  return true;
}

// A Read's sink is named by a key of this request alone, so a response can touch nothing but this request's memory.
// Requires: the request will have the MSN that is next.
std::uint32_t Endpoint::push_outstanding(SendRequest* request, std::uint32_t length) {
  const std::uint32_t stag = next_sink_;
  next_sink_ = next_sink_ == 0xffffffffu ? 1 : next_sink_ + 1;
  reads_.push_back({request, stag, length, tx_msn_[ddp::kQueueRequest]});
  return stag;
}

bool Endpoint::start_read(llp::Gather& out, SendRequest& r) {
  std::array<std::byte, kReadRequestHead> ulpdu;
  if (!fits(out, ulpdu.size(), 0, 0)) return false;
  const std::uint32_t sink = push_outstanding(&r, r.length);
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
  const std::uint32_t id = push_outstanding(&r, r.length);
  emit_atomic_request(r, id, tx_msn_[ddp::kQueueRequest]++, ulpdu);
  frame(out, ulpdu, {});
  consumer_.send_started();
  ++counters.tx_messages;
  return true;
}

// A request that can no longer be served.
void Endpoint::response_failed(const Fault& f) {
  const InboundRequest& read = inbound_.front();
  current_ = Current::nothing;
  if (fault_) return;
  fault_ = f;
  terminate_state_ = TerminateState::wanted;
  terminate_ = read.atomic ? terminate_about_atomic(f, read.msn)
                           : terminate_about_request(f, read.msn, read.request, read.sent);
}

bool Endpoint::continue_response(llp::Gather& out) {
  InboundRequest& read = inbound_.front();
  if (read.atomic) return answer_atomic(out);
  const ReadRequest& q = read.request;
  std::size_t limit = mulpdu_;
  const bool copies = framer_.crc() || q.length <= kCopyResponse / 4;
  if (copies) limit = std::min(limit, TaggedHeader::kSize + kCopyResponse);
  const ddp::Cut cut = ddp::cut(q.length, read.sent, limit, TaggedHeader::kSize);
  if (!fits(out, copies ? TaggedHeader::kSize + cut.payload : TaggedHeader::kSize, copies ? 0 : cut.payload,
            copies ? 0 : 1))
    return false;
  llp::Extent source;
  if (cut.payload > 0) {
    const auto verdict =
        consumer_.resolve(q.source_stag, q.source_to + read.sent, cut.payload, RemoteRight::read, source);
    if (verdict != ddp::Verdict::ok) {
      response_failed(fault::kRdmapInvalidStag);  // it was good when the request came: revoked since
      return true;
    }
  }
  emit_read_response_header(q, read.sent, cut.last, copy_);
  if (copies) {
    if (cut.payload > 0 && !consumer_.copy_out(copy_.data() + TaggedHeader::kSize, source)) {
      response_failed(fault::kRdmapBounds);  // the pages are gone
      return true;
    }
    frame(out, Octets(copy_).first(TaggedHeader::kSize + cut.payload), {});
  } else {
    // In place: nothing can be taken back once the header is on the wire, so the pages are probed before.
    if (read.sent + cut.payload > read.probed) {
      llp::Extent ahead = source;
      ahead.length = std::min<std::uint64_t>(q.length - read.sent, std::max<std::uint64_t>(kProbe, cut.payload));
      if (!consumer_.readable(ahead)) {
        response_failed(fault::kRdmapBounds);
        return true;
      }
      read.probed = read.sent + ahead.length;
    }
    frame(out, Octets(copy_).first(TaggedHeader::kSize), std::span(&source, 1));
  }
  read.sent += cut.payload;
  if (cut.last) {
    ++counters.tx_messages;
    inbound_.pop_front();
    current_ = Current::nothing;
  }
  return true;
}

// Here, not on arrival: the next one is not executed before this one's response was made (RFC 7306 section 5).
bool Endpoint::answer_atomic(llp::Gather& out) {
  std::array<std::byte, kAtomicResponseHead> ulpdu;
  if (!fits(out, ulpdu.size(), 0, 0)) return false;  // it cannot be executed twice
  const AtomicRequest& a = *inbound_.front().atomic;
  llp::Extent target;
  AtomicResponse response{a.request_id, 0};
  if (consumer_.resolve(a.stag, a.to, kAtomicOctets, RemoteRight::atomic, target) != ddp::Verdict::ok) {
    response_failed(fault::kRdmapInvalidStag);  // it was good when the request came: revoked since
    return true;
  }
  if (!consumer_.atomic(target, a, &response.original)) {
    response_failed(fault::kRdmapBounds);  // the page is gone
    return true;
  }
  emit_atomic_response(response, tx_msn_[ddp::kQueueAtomicResponse]++, ulpdu);
  frame(out, ulpdu, {});
  ++counters.tx_messages;
  inbound_.pop_front();
  current_ = Current::nothing;
  return true;
}

void Endpoint::transmitted(std::size_t octets) {
  taken_ += octets;
  while (!unacknowledged_.empty() && unacknowledged_.front().end <= taken_) {
    SendRequest* request = unacknowledged_.front().request;
    unacknowledged_.pop_front();
    consumer_.send_done(*request, Status::success);
  }
}

void Endpoint::fail(const Fault& f) {
  if (fault_) return;
  fault_ = f;
  set_terminate(f, nullptr, nullptr);
}

void Endpoint::abandon() {
  unacknowledged_.clear();
  reads_.clear();
  inbound_.clear();
  current_ = Current::nothing;
  request_ = nullptr;
  immediate_due_ = false;
  receive_open_ = false;
  direct_.clear();
  direct_first_ = direct_left_ = 0;
  direct_active_ = false;
  if (!fault_) fault_ = fault::kRdmapLocalCatastrophic;  // nothing more is received or sent on this stream
}

bool Endpoint::quiescent() const {
  return current_ == Current::nothing && inbound_.empty() && reads_.empty() && unacknowledged_.empty() &&
         !receive_open_ && !direct_active_ && consumer_.next_send() == nullptr;
}

}  // namespace ewarp::rdmap
