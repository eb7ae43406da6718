// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Socket addresses as values.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>

namespace ewarp::cm {

struct Address {
  sockaddr_storage storage{};

  // Takes the first `size` octets of a sockaddr. family() is 0 if it is neither a whole IPv4 nor a whole IPv6 address.
  static Address from(const void* address, std::size_t size);
  static Address any(sa_family_t family);
  static Address loopback(sa_family_t family);
  static Address of_socket(int fd);
  static Address of_peer(int fd);

  sa_family_t family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  // 16, 28, or 0 when there is no address.
  socklen_t size() const;
  std::uint16_t port() const;  // host order
  void set_port(std::uint16_t port);
  bool is_any() const;
  bool is_link_local() const;  // IPv6 only
  bool is_multicast() const;
  std::uint32_t scope() const;
  // ::ffff:a.b.c.d becomes the IPv4 address (a dual-stack listener reports its IPv4 peers so).
  Address unmapped() const;
  // IPv4 addresses as IPv4-mapped GIDs.
  std::array<std::uint8_t, 16> gid() const;
  std::string text() const;  // "192.0.2.1:7471", "[2001:db8::1]:7471"
};

}  // namespace ewarp::cm
