// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/segment.h"

#include <cassert>
#include <cstring>

namespace ewarp::rdmap {

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

Fault lost_memory_fault(MemoryAccess& memory, std::uint32_t stag, std::uint64_t to, std::uint64_t n,
                        RemoteRight right) {
  llp::Extent extent;
  const bool registered = memory.resolve(stag, to, n, right, extent) == ddp::Verdict::ok;
  return registered ? fault::kRdmapBounds : fault::kRdmapInvalidStag;
}

std::optional<Fault> check_immediate(const ddp::UntaggedQueues& queues, const Segment& seg) {
  const bool whole = seg.last && !queues.in_message(ddp::kQueueSend);
  if (!whole || seg.payload != ImmediateData::kSize) return fault::kRdmapUnspecified;
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
  assert(sent <= request.length);
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
