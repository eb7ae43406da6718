// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/ud/grh.h"

#include <algorithm>
#include <cstring>

namespace ewarp::verbs {
namespace {

constexpr std::size_t kUdpHeader = 8, kV4Header = 20;

// RFC 791: the complement of the one's complement sum of the header's 16-bit words.
std::uint16_t header_checksum(Octets header) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < header.size(); i += 2) sum += get_be<std::uint16_t>(header, i);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

void put_v4(MutableOctets h, const llp::UdpArrival& a, std::size_t octets) {
  put_be<std::uint8_t>(h, 0, 0x45);
  put_be<std::uint8_t>(h, 1, a.tos);
  put_be<std::uint16_t>(h, 2, static_cast<std::uint16_t>(kV4Header + kUdpHeader + octets));
  put_be<std::uint8_t>(h, 8, a.ttl);
  put_be<std::uint8_t>(h, 9, IPPROTO_UDP);
  std::memcpy(&h[12], a.from.sin6_addr.s6_addr + 12, 4);
  std::memcpy(&h[16], a.to.s6_addr + 12, 4);
  put_be<std::uint16_t>(h, 10, header_checksum(h));
}

void put_v6(MutableOctets h, const llp::UdpArrival& a, std::size_t octets) {
  put_be<std::uint32_t>(h, 0, 6u << 28 | std::uint32_t{a.tos} << 20);
  put_be<std::uint16_t>(h, 4, static_cast<std::uint16_t>(kUdpHeader + octets));
  put_be<std::uint8_t>(h, 6, IPPROTO_UDP);
  put_be<std::uint8_t>(h, 7, a.ttl);
  std::memcpy(&h[8], a.from.sin6_addr.s6_addr, 16);
  std::memcpy(&h[24], a.to.s6_addr, 16);
}

}  // namespace

std::array<std::byte, kGrh> make_grh(const llp::UdpArrival& a, std::size_t octets) {
  std::array<std::byte, kGrh> grh{};
  if (llp::is_v4(a.to))
    put_v4(MutableOctets(grh).subspan(kGrh - kV4Header), a, octets);
  else
    put_v6(grh, a, octets);
  return grh;
}

}  // namespace ewarp::verbs
