// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a message is cut into segments (RFC 5041 section 5.2).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ewarp::ddp {

struct Cut {
  std::uint64_t offset;   // of the segment's first payload octet in the message
  std::uint32_t payload;  // octets
  bool last;
};

// The segment that begins at `offset` of a message of `length` octets. All but the last are full: mulpdu - header
// octets of payload. Where mulpdu is 2 modulo 4 (what mpa::mulpdu() returns unless it clamps) those are multiples of 4,
// so full segments need no PAD. A message of length 0 is one segment; there is never an empty one behind others.
// Requires: offset < length, or both 0; mulpdu > header.
Cut cut(std::uint64_t length, std::uint64_t offset, std::size_t mulpdu, std::size_t header);

// The same, but a message of a few segments is cut into as few of equal length, for datagrams: a run of equally long
// ones passes through the kernel as one (UDP_SEGMENT, UDP_GRO), and one that is shorter ends the run.
Cut cut_evenly(std::uint64_t length, std::uint64_t offset, std::size_t mulpdu, std::size_t header);

// The same, but the first `lead` octets go in segments of `payload` octets each. Requires: lead < length, or 0; a
// multiple of payload.
inline Cut cut_with_lead(std::uint64_t length, std::uint64_t offset, std::size_t mulpdu, std::size_t header,
                         std::uint64_t lead, std::uint32_t payload) {
  return offset < lead ? Cut{offset, payload, false} : cut(length, offset, mulpdu, header);
}

// Segments behind this one of a message of `length` octets that are as long, but for the last one. Requires: it is none
// of a lead.
constexpr std::uint64_t alike_behind(const Cut& cut, std::uint64_t length) {
  return cut.last ? 0 : (length - cut.offset - cut.payload - 1) / cut.payload;
}

}  // namespace ewarp::ddp
