// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Headers of the messages that a queue pair sends: DDP's and RDMAP's, as one piece of octets. What each
// Send and Write needs is inline: it shows in the latency of a stream.
#pragma once

#include <cassert>
#include <cstdint>

#include "ddp/header.h"
#include "ddp/untagged.h"
#include "rdmap/request.h"

namespace ewarp::rdmap {

inline constexpr std::size_t kReadRequestHead = ddp::UntaggedHeader::kSize + ReadRequest::kSize;
inline constexpr std::size_t kAtomicRequestHead = ddp::UntaggedHeader::kSize + AtomicRequest::kSize;
inline constexpr std::size_t kAtomicResponseHead = ddp::UntaggedHeader::kSize + AtomicResponse::kSize;
inline constexpr std::size_t kImmediateHead = ddp::UntaggedHeader::kSize + ImmediateData::kSize;
inline constexpr std::size_t kLargestHead = kAtomicRequestHead;  // a Terminate is not larger either

// Where the immediate of a Send is: in the DDP header under an opcode of its own, or beside the segment.
enum class ImmediatePlace : std::uint8_t { header, beside };

inline std::uint8_t send_control(const SendRequest& r, ImmediatePlace place) {
  if (r.immediate && place == ImmediatePlace::header)
    return static_cast<std::uint8_t>(control(Opcode::send_immediate) | (r.solicited ? kSolicited : 0));
  if (r.invalidate) return control(r.solicited ? Opcode::send_se_invalidate : Opcode::send_invalidate);
  return control(r.solicited ? Opcode::send_se : Opcode::send);
}

// What the fourth header word of a Send carries.
inline std::uint32_t send_word(const SendRequest& r, ImmediatePlace place) {
  if (r.immediate) return place == ImmediatePlace::header ? r.immediate_data : 0;
  return r.invalidate ? r.invalidate_stag : 0;
}

constexpr std::size_t payload_header(const SendRequest& r) {
  return r.operation == Operation::write ? ddp::TaggedHeader::kSize : ddp::UntaggedHeader::kSize;
}

// Each writes to the front of `out`, which must have room, and returns the octets written.
// A segment of a Send or Write whose payload begins at `offset`; msn counts for a Send.
inline std::size_t emit_payload_header(const SendRequest& r, ImmediatePlace place, std::uint32_t msn,
                                       std::uint64_t offset, bool last, MutableOctets out) {
  assert(out.size() >= payload_header(r) && offset <= r.length);
  if (r.operation == Operation::write) {
    ddp::TaggedHeader{last, control(Opcode::write), r.remote_stag, r.remote_to + offset}.emit(
        out.first<ddp::TaggedHeader::kSize>());
    return ddp::TaggedHeader::kSize;
  }
  ddp::UntaggedHeader{
      last, send_control(r, place), send_word(r, place), ddp::kQueueSend, msn, static_cast<std::uint32_t>(offset)}
      .emit(out.first<ddp::UntaggedHeader::kSize>());
  return ddp::UntaggedHeader::kSize;
}

std::size_t emit_immediate(const SendRequest& r, std::uint32_t msn, MutableOctets out);
std::size_t emit_read_request(const ReadRequest& request, std::uint32_t msn, MutableOctets out);
// Whole words, without masks: all that verbs can ask for.
std::size_t emit_atomic_request(const SendRequest& r, std::uint32_t request_id, std::uint32_t msn, MutableOctets out);
std::size_t emit_read_response_header(const ReadRequest& q, std::uint32_t offset, bool last, MutableOctets out);
std::size_t emit_atomic_response(const AtomicResponse& response, std::uint32_t msn, MutableOctets out);
// message: what Terminate::emit() gave.
std::size_t emit_terminate(Octets message, std::uint32_t msn, MutableOctets out);

}  // namespace ewarp::rdmap
