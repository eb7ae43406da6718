// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The local addresses that an RDMA device has: each makes one fi_info.
#pragma once

#include <string>
#include <vector>

#include "mpi_shim/channel/verbs/address.h"

namespace ewarp::ofi {

struct Interface {
  std::string name;     // of the network interface
  std::string network;  // "192.0.2.0/24"
  std::string device;   // of verbs
  channel::Address address;
  bool loopback = false;

  bool operator==(const Interface&) const = default;
};

// What is used by default comes first: the address with the default route, others, loopback.
// FI_ETHERWARP_IFACE leaves only what it names.
std::vector<Interface> find_interfaces();

// The local address from which packets to this one go; nothing if there is no way.
std::optional<channel::Address> source_towards(const channel::Address& destination);

}  // namespace ewarp::ofi
