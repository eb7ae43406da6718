// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The 40 octets in front of a datagram's payload: the IP header that it had, as RoCE v2 shows it.
#pragma once

#include <array>

#include "llp/udp_inbox.h"

namespace ewarp::verbs {

inline constexpr std::size_t kGrh = 40;

// IPv6: the header. IPv4: 20 octets of zero, then the header with its checksum. Next header is UDP. What the kernel
// does not tell (flow label, identification) is zero. octets: of UDP payload.
std::array<std::byte, kGrh> make_grh(const llp::UdpArrival& arrival, std::size_t octets);

}  // namespace ewarp::verbs
