// Headers of the messages that a queue pair sends: DDP's and RDMAP's, as one piece of octets.
#pragma once

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

constexpr std::size_t payload_header(const SendRequest& r) {
  return r.operation == Operation::write ? ddp::TaggedHeader::kSize : ddp::UntaggedHeader::kSize;
}

// Each writes to the front of `out`, which must have room, and returns the octets written.
// A segment of a Send or Write whose payload begins at `offset`; msn counts for a Send.
std::size_t emit_payload_header(const SendRequest& r, ImmediatePlace place, std::uint32_t msn, std::uint64_t offset,
                                bool last, MutableOctets out);
std::size_t emit_immediate(const SendRequest& r, std::uint32_t msn, MutableOctets out);
std::size_t emit_read_request(const ReadRequest& request, std::uint32_t msn, MutableOctets out);
// Whole words, without masks: all that verbs can ask for.
std::size_t emit_atomic_request(const SendRequest& r, std::uint32_t request_id, std::uint32_t msn, MutableOctets out);
std::size_t emit_read_response_header(const ReadRequest& q, std::uint32_t offset, bool last, MutableOctets out);
std::size_t emit_atomic_response(const AtomicResponse& response, std::uint32_t msn, MutableOctets out);
// message: what Terminate::emit() gave.
std::size_t emit_terminate(Octets message, std::uint32_t msn, MutableOctets out);

}  // namespace ewarp::rdmap
