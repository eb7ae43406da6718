// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Short segments in front of a long message, for the sake of the kernel's copy (docs/design/performance.md, *A lead*).
#pragma once

#include <cstddef>
#include <cstdint>

#include "mpa/framing.h"

namespace ewarp::rdmap {

// Octets of each segment of a lead: without PAD.
inline constexpr std::uint32_t kLeadPayload = 4;
// The shortest full segment of a message that gets a lead.
inline constexpr std::size_t kLeadMulpdu = 16 * 1024;

// Octets of a message that go in its lead; a multiple of kLeadPayload, 0: it needs none.
// `rep movsb`, by which kernels copy, goes octet by octet where the low 12 bits of the target's address are a little
// more than those of the source's: 1 to 31 on one CPU, up to 52 on another (*octet by octet* there). A socket that has
// nothing under way copies to the begin of a page. So the heads of the first segments, 16 or 20 octets each, bring that
// about for what begins about there, as large buffers do. Those of a few short segments bring it further.
//
// source: address of the message's first octet; header: octets of the DDP and RDMAP header of its segments.
constexpr std::uint64_t lead_octets(std::uintptr_t source, std::size_t header) {
  constexpr int kPage = 4096, kNear = 64;
  int behind = static_cast<int>(source % kPage);  // the begin of a page
  if (behind > kPage / 2) behind -= kPage;
  const int first = static_cast<int>(mpa::kLengthField + header), each = first + static_cast<int>(mpa::kCrcField);
  const int missing = kNear + behind - first;
  if (behind >= kNear || missing <= 0) return 0;
  return kLeadPayload * static_cast<std::uint64_t>((missing + each - 1) / each);
}

}  // namespace ewarp::rdmap
