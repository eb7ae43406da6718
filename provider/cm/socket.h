// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The sockets that the connection manager opens, listens on and connects.
#pragma once

#include <cstdint>
#include <optional>

#include "provider/cm/address.h"
#include "provider/startup/socket.h"

namespace ewarp::cm {

using verbs::FdRegistry;
using verbs::raw_close;
using verbs::Socket;

struct SocketOptions {
  bool datagram = false;
  std::optional<bool> v6_only;  // nothing: the system's default
  std::optional<std::uint8_t> tos;
  bool late_port = false;  // port 0 is chosen at connect(), for one peer only
  bool reuse = true;       // TCP only: on unicast UDP a second socket would take the first one's datagrams
};

// A socket bound to `local`. 0 or a positive errno.
int open_bound(const Address& local, const SocketOptions& options, Socket* out);
// verbs::tune_socket(), and the type of service.
void tune_stream(int fd, const Address& peer, bool peer_is_local, std::optional<std::uint8_t> tos);

// As raw_close(), for write().
long raw_write(int fd, const void* data, std::size_t size);

}  // namespace ewarp::cm
