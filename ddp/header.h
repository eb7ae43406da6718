// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// DDP segment headers (RFC 5041 section 4, figures 4 and 5): octets <-> values.
#pragma once

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
