// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/cm/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ewarp::cm {
namespace {

const sockaddr_in& v4(const Address& a) {
  return reinterpret_cast<const sockaddr_in&>(a.storage);
}
sockaddr_in& v4(Address& a) {
  return reinterpret_cast<sockaddr_in&>(a.storage);
}
const sockaddr_in6& v6(const Address& a) {
  return reinterpret_cast<const sockaddr_in6&>(a.storage);
}
sockaddr_in6& v6(Address& a) {
  return reinterpret_cast<sockaddr_in6&>(a.storage);
}

}  // namespace

Address Address::from(const void* address, std::size_t size) {
  Address a;
  std::memcpy(&a.storage, address, std::min(size, sizeof(a.storage)));
  if (a.size() == 0 || size < a.size()) return Address{};
  // What lies behind the address in the caller's buffer is not ours to repeat.
  Address clean;
  std::memcpy(&clean.storage, &a.storage, a.size());
  return clean;
}

Address Address::any(sa_family_t family) {
  Address a;
  a.storage.ss_family = family;
  return a;
}

Address Address::loopback(sa_family_t family) {
  Address a = any(family);
  if (family == AF_INET) {
    v4(a).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  } else {
    v6(a).sin6_addr = in6addr_loopback;
  }
  return a;
}

Address Address::of_socket(int fd) {
  Address a;
  socklen_t size = sizeof(a.storage);
  return getsockname(fd, reinterpret_cast<sockaddr*>(&a.storage), &size) == 0 ? a : Address{};
}

Address Address::of_peer(int fd) {
  Address a;
  socklen_t size = sizeof(a.storage);
  return getpeername(fd, reinterpret_cast<sockaddr*>(&a.storage), &size) == 0 ? a : Address{};
}

socklen_t Address::size() const {
  if (family() == AF_INET) return sizeof(sockaddr_in);
  if (family() == AF_INET6) return sizeof(sockaddr_in6);
  return 0;
}

std::uint16_t Address::port() const {
  if (family() == AF_INET) return ntohs(v4(*this).sin_port);
  if (family() == AF_INET6) return ntohs(v6(*this).sin6_port);
  return 0;
}

void Address::set_port(std::uint16_t port) {
  if (family() == AF_INET) v4(*this).sin_port = htons(port);
  if (family() == AF_INET6) v6(*this).sin6_port = htons(port);
}

bool Address::is_any() const {
  if (family() == AF_INET) return v4(*this).sin_addr.s_addr == 0;
  return IN6_IS_ADDR_UNSPECIFIED(&v6(*this).sin6_addr);
}

bool Address::is_link_local() const {
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6(*this).sin6_addr);
}

bool Address::is_multicast() const {
  if (family() == AF_INET) return IN_MULTICAST(ntohl(v4(*this).sin_addr.s_addr));
  return family() == AF_INET6 && IN6_IS_ADDR_MULTICAST(&v6(*this).sin6_addr);
}

std::uint32_t Address::scope() const {
  return family() == AF_INET6 ? v6(*this).sin6_scope_id : 0;
}

Address Address::unmapped() const {
  if (family() != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6(*this).sin6_addr)) return *this;
  Address a = any(AF_INET);
  v4(a).sin_port = v6(*this).sin6_port;
  std::memcpy(&v4(a).sin_addr, v6(*this).sin6_addr.s6_addr + 12, 4);
  return a;
}

std::array<std::uint8_t, 16> Address::gid() const {
  std::array<std::uint8_t, 16> gid{};
  if (family() == AF_INET) {
    gid[10] = gid[11] = 0xff;
    std::memcpy(gid.data() + 12, &v4(*this).sin_addr, 4);
  } else if (family() == AF_INET6) {
    std::memcpy(gid.data(), &v6(*this).sin6_addr, 16);
  }
  return gid;
}

std::string Address::text() const {
  char host[INET6_ADDRSTRLEN] = "?";
  if (family() == AF_INET) {
    inet_ntop(AF_INET, &v4(*this).sin_addr, host, sizeof(host));
    return fmt::format("{}:{}", host, port());
  }
  if (family() != AF_INET6) return "none";
  inet_ntop(AF_INET6, &v6(*this).sin6_addr, host, sizeof(host));
  return fmt::format("[{}]:{}", host, port());
}

}  // namespace ewarp::cm
