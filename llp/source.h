// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who counts as one, where each source has a limit or a share of its own.
#pragma once

#include <algorithm>
#include <array>

namespace ewarp::llp {

// Of an address, IPv6 or IPv4-mapped: an IPv4 address, or an IPv6 network of 64 bits, as the host part is anybody's to
// choose (RFC 8981). Octet: one of 8 bits, in network order.
template <class Octet>
std::array<Octet, 16> source_of(std::array<Octet, 16> address) {
  constexpr Octet kNone{0}, kOnes{0xff};
  constexpr std::array<Octet, 12> kV4Mapped = {kNone, kNone, kNone, kNone, kNone, kNone,
                                               kNone, kNone, kNone, kNone, kOnes, kOnes};
  if (!std::equal(kV4Mapped.begin(), kV4Mapped.end(), address.begin()))
    std::fill(address.begin() + 8, address.end(), kNone);
  return address;
}

}  // namespace ewarp::llp
