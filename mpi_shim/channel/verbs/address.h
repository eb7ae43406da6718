// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// "192.0.2.1:7000", "[2001:db8::1]:7000".
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace ewarp::channel {

// Where an endpoint listens. IPv4 is kept as an IPv4-mapped IPv6 address, so addresses compare as octets.
struct Address {
  std::array<std::uint8_t, 16> ip{};
  std::uint16_t port = 0;

  static std::optional<Address> parse(const std::string& text);
  static std::optional<Address> from(const sockaddr& address);
  std::string text() const;
  bool v4() const;
  bool unspecified() const;
  sockaddr_storage socket_address() const;
  auto operator<=>(const Address&) const = default;
};

}  // namespace ewarp::channel
