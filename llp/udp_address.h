// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Addresses of UDP sockets: sockaddr_in6 throughout. IPv4 ones are IPv4-mapped (RFC 4291 section 2.5.5.2), whatever
// family the socket itself has.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace ewarp::llp {

// What socket() or bind() says of IPv6 where it is switched off or forbidden: IPv4 remains. Any other error may be over
// the next time.
inline bool lacks_v6(int error) {
  return error == EAFNOSUPPORT || error == EPROTONOSUPPORT || error == EADDRNOTAVAIL || error == EPERM ||
         error == EACCES;
}

inline bool is_v4(const in6_addr& a) {
  return IN6_IS_ADDR_V4MAPPED(&a);
}

inline std::array<std::byte, 16> octets_of(const in6_addr& a) {
  std::array<std::byte, 16> out;
  std::memcpy(out.data(), &a, out.size());
  return out;
}

inline sockaddr_in6 v4_mapped(const sockaddr_in& v4) {
  sockaddr_in6 out{};
  out.sin6_family = AF_INET6;
  out.sin6_port = v4.sin_port;
  out.sin6_addr.s6_addr[10] = out.sin6_addr.s6_addr[11] = 0xff;
  std::memcpy(out.sin6_addr.s6_addr + 12, &v4.sin_addr, 4);
  return out;
}

// The last four octets: of an IPv4-mapped address, or of the unspecified one.
inline in_addr v4_of(const in6_addr& a) {
  in_addr out;
  std::memcpy(&out, a.s6_addr + 12, sizeof out);
  return out;
}

}  // namespace ewarp::llp
