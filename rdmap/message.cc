// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/message.h"

#include <cassert>
#include <cstring>

namespace ewarp::rdmap {
namespace {

using ddp::TaggedHeader;
using ddp::UntaggedHeader;

void emit_whole(Opcode opcode, std::uint32_t qn, std::uint32_t msn, MutableOctets out) {
  assert(out.size() >= UntaggedHeader::kSize);
  UntaggedHeader{true, control(opcode), 0, qn, msn, 0}.emit(out.first<UntaggedHeader::kSize>());
}

}  // namespace

std::size_t emit_immediate(const SendRequest& r, std::uint32_t msn, MutableOctets out) {
  emit_whole(r.solicited ? Opcode::immediate_se : Opcode::immediate, ddp::kQueueSend, msn, out);
  ImmediateData{r.immediate_data}.emit(out.subspan<UntaggedHeader::kSize, ImmediateData::kSize>());
  return kImmediateHead;
}

std::size_t emit_read_request(const ReadRequest& request, std::uint32_t msn, MutableOctets out) {
  emit_whole(Opcode::read_request, ddp::kQueueRequest, msn, out);
  assert(out.size() >= kReadRequestHead);
  request.emit(out.subspan<UntaggedHeader::kSize, ReadRequest::kSize>());
  return kReadRequestHead;
}

std::size_t emit_atomic_request(const SendRequest& r, std::uint32_t request_id, std::uint32_t msn, MutableOctets out) {
  AtomicRequest a;
  a.request_id = request_id;
  a.stag = r.remote_stag;
  a.to = r.remote_to;
  a.data = r.operand;
  a.compare_mask = ~std::uint64_t{0};  // ignored with an addition, but sent so
  if (r.operation == Operation::compare_swap) {
    a.op = static_cast<std::uint8_t>(AtomicRequest::Op::compare_swap);
    a.data_mask = ~std::uint64_t{0};
    a.compare = r.compare;
  }
  emit_whole(Opcode::atomic_request, ddp::kQueueRequest, msn, out);
  assert(out.size() >= kAtomicRequestHead);
  a.emit(out.subspan<UntaggedHeader::kSize, AtomicRequest::kSize>());
  return kAtomicRequestHead;
}

std::size_t emit_read_response_header(const ReadRequest& q, std::uint32_t offset, bool last, MutableOctets out) {
  TaggedHeader{last, control(Opcode::read_response), q.sink_stag, q.sink_to + offset}.emit(
      out.first<TaggedHeader::kSize>());
  return TaggedHeader::kSize;
}

std::size_t emit_atomic_response(const AtomicResponse& response, std::uint32_t msn, MutableOctets out) {
  emit_whole(Opcode::atomic_response, ddp::kQueueAtomicResponse, msn, out);
  response.emit(out.subspan<UntaggedHeader::kSize, AtomicResponse::kSize>());
  return kAtomicResponseHead;
}

std::size_t emit_terminate(Octets message, std::uint32_t msn, MutableOctets out) {
  emit_whole(Opcode::terminate, ddp::kQueueTerminate, msn, out);
  assert(UntaggedHeader::kSize + message.size() <= out.size());
  std::memcpy(out.data() + UntaggedHeader::kSize, message.data(), message.size());
  return UntaggedHeader::kSize + message.size();
}

}  // namespace ewarp::rdmap
