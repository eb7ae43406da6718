#include "rdmap/segment.h"

#include <algorithm>
#include <cstring>

namespace ewarp::rdmap {
namespace {

Fault request_fault(ddp::Verdict v) {
  switch (v) {
    case ddp::Verdict::not_associated:
      return fault::kRdmapNotAssociated;
    case ddp::Verdict::access:
      return fault::kRdmapAccess;
    case ddp::Verdict::wrap:
      return fault::kRdmapWrap;
    case ddp::Verdict::bounds:
      return fault::kRdmapBounds;
    case ddp::Verdict::ok:
    case ddp::Verdict::invalid_stag:
      break;
  }
  return fault::kRdmapInvalidStag;
}

}  // namespace

std::optional<Fault> parse_segment(Octets head, std::size_t ulpdu, bool extensions, Segment& seg) {
  seg.target.clear();
  seg.ulpdu = ulpdu;
  seg.kind = Segment::Kind::small;
  const bool tagged = ddp::is_tagged(head);
  const std::size_t size = tagged ? ddp::TaggedHeader::kSize : ddp::UntaggedHeader::kSize;
  seg.header = head.first(std::min(size, head.size()));
  std::uint8_t control = 0;
  if (tagged) {
    const auto h = ddp::TaggedHeader::parse(head);
    if (!h.ok()) return h.error();
    seg.tagged = h.value();
    seg.last = seg.tagged.last;
    control = seg.tagged.ulp;
  } else {
    const auto h = ddp::UntaggedHeader::parse(head);
    if (!h.ok()) return h.error();
    seg.untagged = h.value();
    seg.last = seg.untagged.last;
    control = seg.untagged.ulp;
  }
  seg.payload = ulpdu - size;
  if (version_of(control) != kRdmapVersion) return fault::kRdmapVersion;
  const OpcodeTraits* known = traits(opcode_of(control));
  if (known == nullptr || (known->extension && !extensions) || known->tagged != tagged) return fault::kRdmapOpcode;
  seg.opcode = static_cast<Opcode>(opcode_of(control));
  return {};
}

std::optional<Fault> check_queue(const ddp::UntaggedQueues& queues, const Segment& seg) {
  const ddp::UntaggedHeader& h = seg.untagged;
  const std::uint32_t due = traits(opcode_of(h.ulp))->qn;
  if (const auto f = queues.check_queue(h)) {
    // RFC 5040 section 4.2 ties each opcode to one queue; a queue that exists but is another's is an opcode error.
    return h.qn < queues.count() && h.qn != due ? fault::kRdmapOpcode : f;
  }
  if (h.qn != due) return fault::kRdmapOpcode;
  return {};
}

std::optional<Fault> check_write(MemoryAccess& memory, Segment& seg) {
  seg.kind = Segment::Kind::write;
  if (seg.payload == 0) return {};  // RFC 5041 section 5.2.1: STag and TO of an empty segment are not looked at
  llp::Extent target;
  const auto verdict = memory.resolve(seg.tagged.stag, seg.tagged.offset, seg.payload, RemoteRight::write, target);
  if (verdict != ddp::Verdict::ok) return ddp::tagged_fault(verdict);
  seg.target.add(target);
  return {};
}

std::optional<Fault> check_read_response(const Segment& seg, std::uint32_t sink, std::uint32_t received,
                                         std::uint32_t length) {
  const bool ends = received + std::uint64_t{seg.payload} == length;
  if (seg.payload > length - received || ends != seg.last) return fault::kDdpBounds;
  if (seg.payload > 0 && seg.tagged.stag != sink) return fault::kDdpInvalidStag;
  if (seg.payload > 0 && seg.tagged.offset != received) return fault::kDdpBounds;
  return {};
}

std::optional<Fault> check_immediate(const ddp::UntaggedQueues& queues, const Segment& seg) {
  const bool whole = seg.last && !queues.in_message(ddp::kQueueSend);
  if (!whole || seg.payload != ImmediateData::kSize) return fault::kRdmapUnspecified;
  return {};
}

std::optional<Fault> check_source(MemoryAccess& memory, const ReadRequest& request, llp::Extent& source) {
  if (request.length == 0) return {};
  const auto verdict =
      memory.resolve(request.source_stag, request.source_to, request.length, RemoteRight::read, source);
  if (verdict != ddp::Verdict::ok) return request_fault(verdict);
  return {};
}

std::optional<Fault> check_atomic(MemoryAccess& memory, const AtomicRequest& a) {
  if (!a.is(AtomicRequest::Op::fetch_add) && !a.is(AtomicRequest::Op::compare_swap)) return fault::kRdmapOpcode;
  llp::Extent target;
  const auto verdict = memory.resolve(a.stag, a.to, kAtomicOctets, RemoteRight::atomic, target);
  if (verdict != ddp::Verdict::ok) return request_fault(verdict);
  if (reinterpret_cast<std::uintptr_t>(target.address) % kAtomicOctets != 0) return fault::kRdmapStreamCatastrophic;
  return {};
}

bool place(MemoryAccess& memory, const ExtentList& target, Octets payload) {
  std::size_t at = 0;
  for (const llp::Extent& e : target.all()) {
    const std::size_t n = std::min(e.length, payload.size() - at);
    if (n == 0) break;
    if (!memory.copy_in(llp::Extent{e.address, n, e.region, e.ticket}, payload.data() + at)) return false;
    at += n;
  }
  return true;
}

Received received_from(const Segment& seg, Octets payload) {
  const ddp::UntaggedHeader& h = seg.untagged;
  Received received;
  received.length = h.mo + static_cast<std::uint32_t>(seg.payload);
  received.solicited = seg.opcode == Opcode::send_se || seg.opcode == Opcode::send_se_invalidate ||
                       seg.opcode == Opcode::immediate_se ||
                       (seg.opcode == Opcode::send_immediate && (h.ulp & kSolicited) != 0);
  if (seg.opcode == Opcode::send_immediate) {
    received.immediate = true;
    received.immediate_data = h.ulp_word;
  } else if (is_immediate(seg.opcode)) {
    received.immediate = received.by_write = true;
    received.immediate_data = ImmediateData::parse(payload).value().data;
  } else if (invalidates(seg.opcode)) {
    received.invalidated = true;
    received.invalidated_stag = h.ulp_word;
  }
  return received;
}

std::array<std::byte, kAtomicOctets> original_octets(const AtomicResponse& response) {
  std::array<std::byte, kAtomicOctets> octets;
  std::memcpy(octets.data(), &response.original, sizeof response.original);
  return octets;
}

Terminate terminate_about(const Fault& f, const Segment* seg, const ReadRequest* read) {
  Terminate t;
  t.fault = f;
  const bool complete =
      seg != nullptr && !seg->header.empty() &&
      seg->header.size() == (ddp::is_tagged(seg->header) ? ddp::TaggedHeader::kSize : ddp::UntaggedHeader::kSize);
  if (f.layer == Layer::llp || !complete) return t;
  t.length_valid = true;
  t.segment_length = static_cast<std::uint16_t>(seg->ulpdu);
  t.ddp_header.assign(seg->header.begin(), seg->header.end());
  if (read == nullptr) return t;
  t.rdmap_header.resize(ReadRequest::kSize);
  read->emit(std::span<std::byte, ReadRequest::kSize>(t.rdmap_header));
  return t;
}

namespace {

Terminate terminate_about_header(const Fault& f, Opcode opcode, std::uint32_t msn, std::size_t rdmap,
                                 const ReadRequest* read) {
  std::array<std::byte, ddp::UntaggedHeader::kSize> header;
  ddp::UntaggedHeader{true, control(opcode), 0, ddp::kQueueRequest, msn, 0}.emit(header);
  Segment seg;
  seg.header = header;
  seg.ulpdu = header.size() + rdmap;
  return terminate_about(f, &seg, read);
}

}  // namespace

Terminate terminate_about_request(const Fault& f, std::uint32_t msn, ReadRequest request, std::uint32_t sent) {
  request.sink_to += sent;
  request.source_to += sent;
  request.length -= sent;
  return terminate_about_header(f, Opcode::read_request, msn, ReadRequest::kSize, &request);
}

Terminate terminate_about_atomic(const Fault& f, std::uint32_t msn) {
  return terminate_about_header(f, Opcode::atomic_request, msn, AtomicRequest::kSize, nullptr);
}

bool is_about_response(const Terminate& message, bool atomic, std::uint32_t sink, std::uint32_t msn) {
  if (!atomic) {
    const auto request = ReadRequest::parse(message.rdmap_header);
    return request.ok() && request.value().sink_stag == sink;
  }
  const Octets header(message.ddp_header);
  if (header.empty() || ddp::is_tagged(header)) return false;
  const auto h = ddp::UntaggedHeader::parse(header);
  return h.ok() && h.value().qn == ddp::kQueueRequest && h.value().msn == msn;
}

Status status_of(const Fault& f) {
  if (f == fault::kDdpNoBuffer) return Status::no_receive;
  if (f == fault::kDdpTooLong || f == fault::kRdmapOpcode) return Status::remote_invalid;
  if (f.layer != Layer::llp && f.type == 1) return Status::remote_access;
  return f.layer == Layer::rdmap ? Status::remote_operation : Status::flushed;
}

}  // namespace ewarp::rdmap
