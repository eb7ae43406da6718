// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/header.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "ddp/header.h"

namespace ewarp::rdmap {
namespace {

constexpr std::uint32_t kNoQueue = 0;

// Indexed by opcode; no name: unassigned.
constexpr std::array<OpcodeTraits, 16> kTraits = {{
    {"RDMA Write", true, kNoQueue, 0, false, false},
    {"RDMA Read Request", false, 1, ReadRequest::kSize, true, false},
    {"RDMA Read Response", true, kNoQueue, 0, false, false},
    {"Send", false, 0, 0, false, false},
    {"Send with Invalidate", false, 0, 0, false, false},
    {"Send with Solicited Event", false, 0, 0, false, false},
    {"Send with Solicited Event and Invalidate", false, 0, 0, false, false},
    {"Terminate", false, 2, 4, true, false},
    {"Immediate Data", false, 0, ImmediateData::kSize, true, true},
    {"Immediate Data with Solicited Event", false, 0, ImmediateData::kSize, true, true},
    {"Atomic Request", false, 1, AtomicRequest::kSize, true, true},
    {"Atomic Response", false, 3, AtomicResponse::kSize, true, true},
    {},
    {},
    {},
    {"Send with Immediate", false, 0, 0, false, true},
}};

// RFC 5040 figure 8; its bit 0 is the most significant: LLLL EEEE | code | M D R . .... | ........
constexpr std::size_t kTerminateControl = 4;
constexpr std::size_t kSegmentLength = 2;
constexpr std::uint8_t kLengthValid = 0x80, kDdpIncluded = 0x40, kRdmapIncluded = 0x20;
constexpr std::uint8_t kHeaderBits = kLengthValid | kDdpIncluded | kRdmapIncluded;
// The same three as Linux siw sends them from a little-endian host.
constexpr std::uint8_t kSwappedLengthValid = 0x01, kSwappedDdpIncluded = 0x02, kSwappedRdmapIncluded = 0x04;
constexpr std::uint8_t kSwappedHeaderBits = kSwappedLengthValid | kSwappedDdpIncluded | kSwappedRdmapIncluded;

constexpr std::uint8_t unswap(std::uint8_t bits) {
  unsigned out = 0;
  if ((bits & kSwappedLengthValid) != 0) out |= kLengthValid;
  if ((bits & kSwappedDdpIncluded) != 0) out |= kDdpIncluded;
  if ((bits & kSwappedRdmapIncluded) != 0) out |= kRdmapIncluded;
  return static_cast<std::uint8_t>(out);
}

void append(std::vector<std::byte>& out, const std::vector<std::byte>& in) {
  out.insert(out.end(), in.begin(), in.end());
}

std::vector<std::byte> to_vector(Octets in) {
  return {in.begin(), in.end()};
}

}  // namespace

const OpcodeTraits* traits(std::uint8_t opcode) {
  if (opcode >= kTraits.size() || kTraits[opcode].name == nullptr) return nullptr;
  return &kTraits[opcode];
}

// RFC 5040 figure 6.
Result<ReadRequest> ReadRequest::parse(Octets in) {
  if (in.size() != kSize) return fault::kRdmapUnspecified;
  return ReadRequest{get_be<std::uint32_t>(in, 0), get_be<std::uint64_t>(in, 4), get_be<std::uint32_t>(in, 12),
                     get_be<std::uint32_t>(in, 16), get_be<std::uint64_t>(in, 20)};
}

void ReadRequest::emit(std::span<std::byte, kSize> out) const {
  put_be<std::uint32_t>(out, 0, sink_stag);
  put_be<std::uint64_t>(out, 4, sink_to);
  put_be<std::uint32_t>(out, 12, length);
  put_be<std::uint32_t>(out, 16, source_stag);
  put_be<std::uint64_t>(out, 20, source_to);
}

Result<Terminate> Terminate::parse(Octets in) {
  if (in.size() < kTerminateControl) return fault::kRdmapUnspecified;
  auto layer_and_type = get_be<std::uint8_t>(in, 0);
  auto headers = get_be<std::uint8_t>(in, 2);
  Terminate t;
  // A correct message has no low bits here, so with a header included the swapped form cannot be mistaken. Without one
  // nothing tells the two apart, and the RFC's order is taken.
  t.swapped = (headers & kSwappedHeaderBits) != 0 && (headers & kHeaderBits) == 0;
  if (t.swapped) {
    layer_and_type = static_cast<std::uint8_t>(layer_and_type << 4 | layer_and_type >> 4);
    headers = unswap(headers);
  }
  t.fault = Fault{static_cast<Layer>(layer_and_type >> 4), static_cast<std::uint8_t>(layer_and_type & 0x0f),
                  get_be<std::uint8_t>(in, 1)};
  t.length_valid = (headers & kLengthValid) != 0;

  Octets rest = in.subspan(kTerminateControl);
  if ((headers & (kLengthValid | kDdpIncluded)) != 0) {
    if (rest.size() < kSegmentLength) return fault::kRdmapUnspecified;
    t.segment_length = get_be<std::uint16_t>(rest, 0);
    rest = rest.subspan(kSegmentLength);
  }
  if ((headers & kDdpIncluded) != 0) {
    if (rest.empty()) return fault::kRdmapUnspecified;
    const std::size_t size = ddp::is_tagged(rest) ? ddp::TaggedHeader::kSize : ddp::UntaggedHeader::kSize;
    if (rest.size() < size) return fault::kRdmapUnspecified;
    t.ddp_header = to_vector(rest.first(size));
    rest = rest.subspan(size);
  }
  if ((headers & kRdmapIncluded) != 0) {
    if (rest.size() < ReadRequest::kSize) return fault::kRdmapUnspecified;
    t.rdmap_header = to_vector(rest.first(ReadRequest::kSize));
  }
  return t;
}

std::vector<std::byte> Terminate::emit() const {
  unsigned headers = 0;
  if (length_valid) headers |= kLengthValid;
  if (!ddp_header.empty()) headers |= kDdpIncluded;
  if (!rdmap_header.empty()) headers |= kRdmapIncluded;
  const bool has_length = length_valid || !ddp_header.empty();

  std::vector<std::byte> out(kTerminateControl + (has_length ? kSegmentLength : 0));
  put_be<std::uint8_t>(out, 0,
                       static_cast<std::uint8_t>(static_cast<unsigned>(fault.layer) << 4 | (fault.type & 0x0fu)));
  put_be<std::uint8_t>(out, 1, fault.code);
  put_be<std::uint8_t>(out, 2, static_cast<std::uint8_t>(headers));
  if (has_length) put_be<std::uint16_t>(out, kTerminateControl, segment_length);
  append(out, ddp_header);
  append(out, rdmap_header);
  return out;
}

Result<ImmediateData> ImmediateData::parse(Octets in) {
  if (in.size() != kSize) return fault::kRdmapUnspecified;
  return ImmediateData{get_be<std::uint32_t>(in, 0)};
}

void ImmediateData::emit(std::span<std::byte, kSize> out) const {
  put_be<std::uint32_t>(out, 0, data);
  put_be<std::uint32_t>(out, 4, 0);
}

// RFC 7306 section 5.2: 28 reserved bits, then the operation.
Result<AtomicRequest> AtomicRequest::parse(Octets in) {
  if (in.size() != kSize) return fault::kRdmapUnspecified;
  return AtomicRequest{static_cast<std::uint8_t>(get_be<std::uint32_t>(in, 0) & 0x0f),
                       get_be<std::uint32_t>(in, 4),
                       get_be<std::uint32_t>(in, 8),
                       get_be<std::uint64_t>(in, 12),
                       get_be<std::uint64_t>(in, 20),
                       get_be<std::uint64_t>(in, 28),
                       get_be<std::uint64_t>(in, 36),
                       get_be<std::uint64_t>(in, 44)};
}

void AtomicRequest::emit(std::span<std::byte, kSize> out) const {
  put_be<std::uint32_t>(out, 0, op & 0x0fu);
  put_be<std::uint32_t>(out, 4, request_id);
  put_be<std::uint32_t>(out, 8, stag);
  put_be<std::uint64_t>(out, 12, to);
  put_be<std::uint64_t>(out, 20, data);
  put_be<std::uint64_t>(out, 28, data_mask);
  put_be<std::uint64_t>(out, 36, compare);
  put_be<std::uint64_t>(out, 44, compare_mask);
}

Result<AtomicResponse> AtomicResponse::parse(Octets in) {
  if (in.size() != kSize) return fault::kRdmapUnspecified;
  return AtomicResponse{get_be<std::uint32_t>(in, 0), get_be<std::uint64_t>(in, 4)};
}

void AtomicResponse::emit(std::span<std::byte, kSize> out) const {
  put_be<std::uint32_t>(out, 0, request_id);
  put_be<std::uint64_t>(out, 4, original);
}

// The top bits of the fields are added apart (as XOR): what is left below them cannot carry out of its field.
std::uint64_t fetch_add(std::uint64_t memory, std::uint64_t addend, std::uint64_t field_mask) {
  const std::uint64_t below = ~field_mask;
  return ((memory & below) + (addend & below)) ^ ((memory ^ addend) & field_mask);
}

std::uint64_t compare_swap(std::uint64_t memory, std::uint64_t swap, std::uint64_t swap_mask, std::uint64_t compare,
                           std::uint64_t compare_mask) {
  if (((compare ^ memory) & compare_mask) != 0) return memory;
  return (memory & ~swap_mask) | (swap & swap_mask);
}

namespace {

struct FaultName {
  Fault fault;
  const char* name;
};

// RFC 5040 section 4.8, RFC 5041 section 7.2, RFC 5044 section 8, RFC 6581 section 8.
constexpr FaultName kFaultNames[] = {
    {fault::kRdmapLocalCatastrophic, "RDMAP: local catastrophic error"},
    {fault::kRdmapInvalidStag, "RDMAP: invalid STag"},
    {fault::kRdmapBounds, "RDMAP: base or bounds violation"},
    {fault::kRdmapAccess, "RDMAP: access rights violation"},
    {fault::kRdmapNotAssociated, "RDMAP: STag not associated with the stream"},
    {fault::kRdmapWrap, "RDMAP: TO wrap"},
    {fault::kRdmapCannotInvalidate, "RDMAP: STag cannot be invalidated"},
    {{Layer::rdmap, 1, 0xff}, "RDMAP: unspecified protection error"},
    {fault::kRdmapVersion, "RDMAP: invalid version"},
    {fault::kRdmapOpcode, "RDMAP: unexpected opcode"},
    {fault::kRdmapStreamCatastrophic, "RDMAP: catastrophic error of the stream"},
    {{Layer::rdmap, 2, 0x08}, "RDMAP: global catastrophic error"},
    {{Layer::rdmap, 2, 0x09}, "RDMAP: STag cannot be invalidated"},
    {fault::kRdmapUnspecified, "RDMAP: unspecified operation error"},
    {fault::kDdpLocalCatastrophic, "DDP: local catastrophic error"},
    {fault::kDdpInvalidStag, "DDP: invalid STag"},
    {fault::kDdpBounds, "DDP: base or bounds violation"},
    {fault::kDdpNotAssociated, "DDP: STag not associated with the stream"},
    {fault::kDdpWrap, "DDP: TO wrap"},
    {fault::kDdpTaggedVersion, "DDP: invalid version in a tagged segment"},
    {fault::kDdpInvalidQn, "DDP: invalid queue number"},
    {fault::kDdpNoBuffer, "DDP: invalid MSN, no buffer available"},
    {fault::kDdpMsnRange, "DDP: invalid MSN, out of range"},
    {fault::kDdpInvalidMo, "DDP: invalid MO"},
    {fault::kDdpTooLong, "DDP: message too long for the available buffer"},
    {fault::kDdpUntaggedVersion, "DDP: invalid version in an untagged segment"},
    {fault::kMpaLost, "MPA: TCP connection closed, terminated or lost"},
    {fault::kMpaCrc, "MPA: CRC mismatch"},
    {fault::kMpaMarker, "MPA: marker and length mismatch"},
    {fault::kMpaStartup, "MPA: invalid Request or Reply frame"},
    {fault::kMpaLocalCatastrophic, "MPA: local catastrophic error"},
    {fault::kMpaInsufficientIrd, "MPA: insufficient IRD resources"},
    {fault::kMpaNoRtr, "MPA: no matching RTR option"},
};

const char* name_of(const Fault& f) {
  const auto* found =
      std::find_if(std::begin(kFaultNames), std::end(kFaultNames), [&f](const FaultName& n) { return n.fault == f; });
  return found == std::end(kFaultNames) ? "unassigned" : found->name;
}

}  // namespace

std::string to_string(const Fault& f) {
  char text[96];
  std::snprintf(text, sizeof text, "%u/%u/%02x %s", static_cast<unsigned>(f.layer), f.type, f.code, name_of(f));
  return text;
}

std::string to_string(const ReadRequest& r) {
  char text[144];
  std::snprintf(text, sizeof text,
                "sink=%08" PRIx32 "/%016" PRIx64 " length=%" PRIu32 " source=%08" PRIx32 "/%016" PRIx64, r.sink_stag,
                r.sink_to, r.length, r.source_stag, r.source_to);
  return text;
}

std::string to_string(const Terminate& t) {
  std::string text = to_string(t.fault);
  if (t.length_valid) text += " segment_length=" + std::to_string(t.segment_length);
  if (!t.ddp_header.empty()) {
    const Octets header(t.ddp_header);
    if (ddp::is_tagged(header)) {
      if (const auto h = ddp::TaggedHeader::parse(header); h.ok()) text += " [" + ddp::to_string(h.value()) + "]";
    } else {
      if (const auto h = ddp::UntaggedHeader::parse(header); h.ok()) text += " [" + ddp::to_string(h.value()) + "]";
    }
  }
  if (const auto r = ReadRequest::parse(t.rdmap_header); r.ok()) text += " [" + to_string(r.value()) + "]";
  if (t.swapped) text += " (swapped)";
  return text;
}

}  // namespace ewarp::rdmap
