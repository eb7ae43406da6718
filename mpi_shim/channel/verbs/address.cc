// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace ewarp::channel {
namespace {

constexpr std::array<std::uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

}  // namespace

std::optional<Address> Address::parse(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = text.substr(0, colon);
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  Address a;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, a.port);
  if (error != std::errc() || stop != end) return std::nullopt;
  if (brackets) return inet_pton(AF_INET6, host.c_str(), a.ip.data()) == 1 ? std::optional(a) : std::nullopt;
  std::copy(kMapped.begin(), kMapped.end(), a.ip.begin());
  return inet_pton(AF_INET, host.c_str(), a.ip.data() + kMapped.size()) == 1 ? std::optional(a) : std::nullopt;
}

std::optional<Address> Address::from(const sockaddr& address) {
  Address a;
  if (address.sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &address, sizeof in);
    std::copy(kMapped.begin(), kMapped.end(), a.ip.begin());
    std::memcpy(a.ip.data() + kMapped.size(), &in.sin_addr, 4);
    a.port = ntohs(in.sin_port);
    return a;
  }
  if (address.sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 in6;
  std::memcpy(&in6, &address, sizeof in6);
  std::memcpy(a.ip.data(), &in6.sin6_addr, a.ip.size());
  a.port = ntohs(in6.sin6_port);
  return a;
}

bool Address::v4() const {
  return std::equal(kMapped.begin(), kMapped.end(), ip.begin());
}

bool Address::unspecified() const {
  return std::all_of(ip.begin() + (v4() ? kMapped.size() : 0), ip.end(), [](std::uint8_t octet) { return octet == 0; });
}

std::string Address::text() const {
  char host[INET6_ADDRSTRLEN] = "";
  if (v4())
    inet_ntop(AF_INET, ip.data() + kMapped.size(), host, sizeof host);
  else
    inet_ntop(AF_INET6, ip.data(), host, sizeof host);
  std::string out = v4() ? "" : "[";
  out.append(host).append(v4() ? ":" : "]:").append(std::to_string(port));
  return out;
}

sockaddr_storage Address::socket_address() const {
  sockaddr_storage out{};
  if (v4()) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, ip.data() + kMapped.size(), 4);
    std::memcpy(&out, &in, sizeof in);
  } else {
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    std::memcpy(&in6.sin6_addr, ip.data(), ip.size());
    std::memcpy(&out, &in6, sizeof in6);
  }
  return out;
}

}  // namespace ewarp::channel
