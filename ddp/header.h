// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// DDP segment headers (RFC 5041 section 4, figures 4 and 5): octets <-> values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "llp/fault.h"
#include "llp/octets.h"

namespace ewarp::ddp {

// RFC figures number the most significant bit 0: T is 0x80.
inline constexpr std::uint8_t kTagged = 0x80;
inline constexpr std::uint8_t kLast = 0x40;
inline constexpr std::uint8_t kVersionMask = 0x03;
inline constexpr std::uint8_t kVersion = 1;

// Requires: !ulpdu.empty().
inline bool is_tagged(Octets ulpdu) {
  return (std::to_integer<std::uint8_t>(ulpdu[0]) & kTagged) != 0;
}

// The four reserved bits of the first octet. Between two of our own that consent to extensions they tell how many
// segments of the same length follow in the message before its last one, or that there are at least so many
// (docs/protocol/extensions.md section 7). RFC 5041 has them sent as zero and ignored, so nobody else is told.
inline constexpr std::uint64_t kMostAhead = 15;
inline constexpr unsigned kAheadShift = 2;

// header: as emitted, with these bits zero.
inline void set_ahead(MutableOctets header, std::uint64_t segments) {
  header[0] |= static_cast<std::byte>(std::min(segments, kMostAhead) << kAheadShift);
}
// Requires: !header.empty().
inline std::size_t ahead(Octets header) {
  return std::to_integer<std::size_t>(header[0]) >> kAheadShift & kMostAhead;
}

struct TaggedHeader {
  static constexpr std::size_t kSize = 14;
  bool last = false;
  std::uint8_t ulp = 0;  // RsvdULP[0:7]: RDMAP's control octet; DDP carries it and never reads it
  std::uint32_t stag = 0;
  std::uint64_t offset = 0;  // TO

  // The caller has seen the T bit. Faults: 1/1/04 version, 1/0/00 shorter than the header. Reserved bits are ignored.
  static Result<TaggedHeader> parse(Octets in);
  void emit(std::span<std::byte, kSize> out) const;  // writes every bit
  bool operator==(const TaggedHeader&) const = default;
};

struct UntaggedHeader {
  static constexpr std::size_t kSize = 18;
  bool last = false;
  std::uint8_t ulp = 0;
  std::uint32_t ulp_word = 0;  // RsvdULP[8:39]: the Invalidate STag
  std::uint32_t qn = 0;
  std::uint32_t msn = 0;
  std::uint32_t mo = 0;

  // The caller has seen the T bit clear. Faults: 1/2/06 version, 1/0/00 shorter than the header.
  static Result<UntaggedHeader> parse(Octets in);
  void emit(std::span<std::byte, kSize> out) const;
  bool operator==(const UntaggedHeader&) const = default;
};

std::string to_string(const TaggedHeader&);
std::string to_string(const UntaggedHeader&);

}  // namespace ewarp::ddp
