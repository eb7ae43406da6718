// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A segment that arrives, and the checks that do not depend on what carries it: a stream or a reliable datagram. What
// each segment passes through is inline: it shows in the latency of a stream.
#pragma once

#include <algorithm>
#include <cassert>
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
inline std::optional<Fault> parse_segment(Octets head, std::size_t ulpdu, bool extensions, Segment& seg) {
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

// Whether the opcode belongs to the queue, and the MSN is the next one. Requires: untagged.
inline std::optional<Fault> check_queue(const ddp::UntaggedQueues& queues, const Segment& seg) {
  assert(!seg.is_tagged());
  const ddp::UntaggedHeader& h = seg.untagged;
  const std::uint32_t due = traits(opcode_of(h.ulp))->qn;
  if (const auto f = queues.check_queue(h)) {
    // RFC 5040 section 4.2 ties each opcode to one queue; a queue that exists but is another's is an opcode error.
    return h.qn < queues.count() && h.qn != due ? fault::kRdmapOpcode : f;
  }
  if (h.qn != due) return fault::kRdmapOpcode;
  return {};
}

// A segment of a Write: finds its target.
inline std::optional<Fault> check_write(MemoryAccess& memory, Segment& seg) {
  assert(seg.is_tagged());
  seg.kind = Segment::Kind::write;
  if (seg.payload == 0) return {};  // RFC 5041 section 7.1: STag and TO of an empty segment are not looked at
  llp::Extent target;
  const auto verdict = memory.resolve(seg.tagged.stag, seg.tagged.offset, seg.payload, RemoteRight::write, target);
  if (verdict != ddp::Verdict::ok) return ddp::tagged_fault(verdict);
  seg.target.add(target);
  return {};
}

// A segment of the response to a Read of `length` octets into `sink`, of which `received` have come.
inline std::optional<Fault> check_read_response(const Segment& seg, std::uint32_t sink, std::uint32_t received,
                                                std::uint32_t length) {
  assert(received <= length);
  const bool ends = received + std::uint64_t{seg.payload} == length;
  if (seg.payload > length - received || ends != seg.last) return fault::kDdpBounds;
  if (seg.payload > 0 && seg.tagged.stag != sink) return fault::kDdpInvalidStag;
  if (seg.payload > 0 && seg.tagged.offset != received) return fault::kDdpBounds;
  return {};
}

// Immediate Data (RFC 7306 section 6): nothing is placed, so what is checked is the message itself.
std::optional<Fault> check_immediate(const ddp::UntaggedQueues& queues, const Segment& seg);
// Faults of a Read Request's source (RFC 5040 section 7.2), and of an atomic's target (RFC 7306 section 8.2).
Fault request_fault(ddp::Verdict v);
// About a range of a peer's request that was good when it came and cannot be read or written now: its owner took it
// back (invalid STag), or has unmapped the pages (a bounds violation). It may go between resolve() and the access.
Fault lost_memory_fault(MemoryAccess& memory, std::uint32_t stag, std::uint64_t to, std::uint64_t n, RemoteRight right);
// The source of a Read Request; nothing to find when it is empty.
inline std::optional<Fault> check_source(MemoryAccess& memory, const ReadRequest& request, llp::Extent& source) {
  if (request.length == 0) return {};
  const auto verdict =
      memory.resolve(request.source_stag, request.source_to, request.length, RemoteRight::read, source);
  if (verdict != ddp::Verdict::ok) return request_fault(verdict);
  return {};
}

// Operation, target and its alignment (RFC 7306 section 8.2).
std::optional<Fault> check_atomic(MemoryAccess& memory, const AtomicRequest& request);

// Copies a payload to where it belongs; false when a target may not, or can not, be written any more.
inline bool place(MemoryAccess& memory, const ExtentList& target, Octets payload) {
  std::size_t at = 0;
  for (const llp::Extent& e : target.all()) {
    const std::size_t n = std::min(e.length, payload.size() - at);
    if (n == 0) break;
    if (!memory.copy_in(llp::Extent{e.address, n, e.region, e.ticket}, payload.data() + at)) return false;
    at += n;
  }
  return true;
}

// n octets of a target from `from` on. Requires: it has them.
inline ExtentList slice(const ExtentList& whole, std::size_t from, std::size_t n) {
  ExtentList out;
  for (const llp::Extent& e : whole.all()) {
    if (n == 0) break;
    if (from < e.length) {
      const std::size_t piece = std::min(e.length - from, n);
      out.add(llp::Extent{e.address + from, piece, e.region, e.ticket});
      n -= piece;
      from = 0;
    } else {
      from -= e.length;
    }
  }
  assert(n == 0);
  return out;
}

// The last segment of a message that took a receive, but for what Immediate Data says of the Write before it.
inline Received received_from(const Segment& seg, Octets payload) {
  assert(seg.last && !seg.is_tagged());
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
// How a request ends that the peer's message names: 0/1 and 1/1 are protection, and so on.
Status status_of(const Fault& fault);

}  // namespace ewarp::rdmap
