// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An FPDU encoder of the tests' own, octet by octet after RFC 5044 section 4: shares nothing with mpa/framing.cc and
// can send what that never would.
#pragma once

#include <cstdint>

#include "llp/gather.h"
#include "tests/vectors/vectors.h"

namespace ewarp::test {

std::uint32_t plain_crc32c(Octets in);

// What a well-behaved sender would not do.
struct Oddities {
  std::uint16_t reserved = 0;     // first half of each marker
  std::uint16_t pointer_xor = 0;  // applied to each FPDUPTR, after which the CRC is computed
  std::byte pad{0};
  std::uint32_t crc_xor = 0;
};

class WireSender {
 public:
  WireSender(bool crc, bool markers, std::uint64_t position = 0) : crc_(crc), markers_(markers), position_(position) {}

  // The next FPDU of the stream, with the markers that fall into it.
  Bytes fpdu(Octets ulpdu, const Oddities& odd = {});

  std::uint64_t position() const { return position_; }

 private:
  void put(Bytes& out, std::byte octet);
  void put_marker(Bytes& out, std::uint64_t pointer, const Oddities& odd);

  bool crc_;
  bool markers_;
  std::uint64_t position_;  // in the stream, from the first octet of full operation
};

// All octets of a gather list in order.
Bytes flatten(const llp::Gather& gather);
llp::Extent extent_of(Octets octets);
// An untagged ULPDU of n octets (n >= 14: the last ones may be missing of a header; MPA does not look).
Bytes some_ulpdu(std::size_t n, unsigned seed = 0);

extern const std::vector<CMUnitTest> kSplitTests;

}  // namespace ewarp::test
