// A segment that arrives, and the checks that do not depend on what carries it: a stream or a reliable datagram.
#pragma once

#include <cstdint>
#include <optional>

#include "ddp/untagged.h"
#include "rdmap/request.h"

namespace ewarp::rdmap {

struct Segment {
  enum class Kind : std::uint8_t { send, write, read_response, small };
  Kind kind = Kind::small;
  Opcode opcode = Opcode::write;
  bool last = false;
  ddp::UntaggedHeader untagged;
  ddp::TaggedHeader tagged;
  std::size_t payload = 0;
  std::size_t ulpdu = 0;
  Octets header;  // octets as received, for the Terminate
  ExtentList target;
  bool is_tagged() const { return header.size() == ddp::TaggedHeader::kSize; }
};

constexpr bool is_send(Opcode op) {
  return op == Opcode::send || op == Opcode::send_se || op == Opcode::send_invalidate ||
         op == Opcode::send_se_invalidate;
}
constexpr bool is_immediate(Opcode op) {
  return op == Opcode::immediate || op == Opcode::immediate_se;
}
constexpr bool invalidates(Opcode op) {
  return op == Opcode::send_invalidate || op == Opcode::send_se_invalidate;
}

// What can be said of a segment alone: DDP version, RDMAP version, opcode. head: at least the DDP header, or the whole
// ULPDU if that is shorter; ulpdu: octets of the whole. After a fault seg.header is what there is of the DDP header.
std::optional<Fault> parse_segment(Octets head, std::size_t ulpdu, bool extensions, Segment& seg);
// Whether the opcode belongs to the queue, and the MSN is the next one. Requires: untagged.
std::optional<Fault> check_queue(const ddp::UntaggedQueues& queues, const Segment& seg);
// A segment of a Write: finds its target.
std::optional<Fault> check_write(MemoryAccess& memory, Segment& seg);
// A segment of the response to a Read of `length` octets into `sink`, of which `received` have come.
std::optional<Fault> check_read_response(const Segment& seg, std::uint32_t sink, std::uint32_t received,
                                         std::uint32_t length);
// Immediate Data (RFC 7306 section 6): nothing is placed, so what is checked is the message itself.
std::optional<Fault> check_immediate(const ddp::UntaggedQueues& queues, const Segment& seg);
// The source of a Read Request (RFC 5040 section 7.1); nothing to find when it is empty.
std::optional<Fault> check_source(MemoryAccess& memory, const ReadRequest& request, llp::Extent& source);
// Operation, target and its alignment (RFC 7306 section 8.2).
std::optional<Fault> check_atomic(MemoryAccess& memory, const AtomicRequest& request);

// Copies a payload to where it belongs; false when a target may not, or can not, be written any more.
bool place(MemoryAccess& memory, const ExtentList& target, Octets payload);
// The last segment of a message that took a receive, but for what Immediate Data says of the Write before it.
Received received_from(const Segment& seg, Octets payload);
// What an atomic returns, in the order of this machine's octets (RFC 7306 section 5).
std::array<std::byte, kAtomicOctets> original_octets(const AtomicResponse& response);

// --- errors ---

// About a segment (null: about none), with the headers that RFC 5040 section 4.8 asks for.
Terminate terminate_about(const Fault& fault, const Segment* seg, const ReadRequest* read);
// About a request of the peer that can no longer be served. Of a Read Request, what was sent of the response is taken
// off the header that goes back (RFC 5040 section 4.8).
Terminate terminate_about_request(const Fault& fault, std::uint32_t msn, ReadRequest request, std::uint32_t sent);
// An Atomic Request has none to go back (RFC 7306 section 8.2).
Terminate terminate_about_atomic(const Fault& fault, std::uint32_t msn);
// Whether the peer's message is about this Read (its sink) or atomic (its MSN) of ours.
bool is_about_response(const Terminate& message, bool atomic, std::uint32_t sink, std::uint32_t msn);
// How a request ends that the peer's message names (verbs-semantics: 0/1, 1/1 are protection, and so on).
Status status_of(const Fault& fault);

}  // namespace ewarp::rdmap
