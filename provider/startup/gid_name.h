// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Addresses of sockets as GIDs, and the other way round (RFC 4291 section 2.5.5.2 for IPv4).
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace ewarp::verbs {

struct SocketName {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
// interface: the scope of a link-local address.
SocketName socket_name(const ibv_gid& gid, std::uint16_t port, unsigned interface);
ibv_gid gid_of_peer(int fd);  // zero if it has none
bool is_ipv4(const ibv_gid& gid);
std::string text_of(const ibv_gid& gid);

}  // namespace ewarp::verbs
