// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/startup/gid_name.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

namespace ewarp::verbs {

bool is_ipv4(const ibv_gid& gid) {
  static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0;
}

SocketName socket_name(const ibv_gid& gid, std::uint16_t port, unsigned interface) {
  SocketName name;
  if (is_ipv4(gid)) {
    auto& in = reinterpret_cast<sockaddr_in&>(name.storage);
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, gid.raw + 12, 4);
    name.size = sizeof in;
  } else {
    auto& in = reinterpret_cast<sockaddr_in6&>(name.storage);
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    std::memcpy(&in.sin6_addr, gid.raw, 16);
    if (IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr)) in.sin6_scope_id = interface;
    name.size = sizeof in;
  }
  return name;
}

ibv_gid gid_of_peer(int fd) {
  ibv_gid gid{};
  sockaddr_storage a{};
  socklen_t size = sizeof a;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&a), &size) != 0) return gid;
  if (a.ss_family == AF_INET) {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in&>(a).sin_addr, 4);
  } else if (a.ss_family == AF_INET6) {
    std::memcpy(gid.raw, &reinterpret_cast<const sockaddr_in6&>(a).sin6_addr, 16);
  }
  return gid;
}

std::string text_of(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (is_ipv4(gid))
    inet_ntop(AF_INET, gid.raw + 12, text, sizeof text);
  else
    inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return text;
}

}  // namespace ewarp::verbs
