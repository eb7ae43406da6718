// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Addresses for rdma_cm: which one of this host belongs to an RDMA device that serves, and how a Contact names it.
#pragma once

#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include <string>

#include "mpi_shim/acp/core/peers.h"

namespace ewarp::acp {

inline constexpr int kResolveMs = 2000;  // for an address or a route

// An address of this host and the device that has it, which librdmacm keeps open as long as `id` is there.
struct RcPlace {
  rdma_cm_id* id = nullptr;
  sockaddr_storage address{};  // port 0
  std::uint32_t reads = 0;     // Reads and atomics that may be under way on a connection, in each direction

  // name: of the device; empty: the first that serves, those of loopback addresses before others if `prefer_loopback`.
  // Nobody else reads the channel meanwhile. Empty, or why there is none.
  std::string find(rdma_event_channel* channel, const std::string& name, bool prefer_loopback);
};

// IPv4 or IPv6, as the contact says.
sockaddr_storage address_of(const Contact& contact);
// port: in network byte order.
void introduce(const sockaddr_storage& address, std::uint16_t port, Contact* out);

}  // namespace ewarp::acp
