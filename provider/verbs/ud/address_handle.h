// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Where a datagram goes: ibv_create_ah() (docs/protocol/datagrams.md section 2).
#pragma once

#include <infiniband/verbs.h>

#include "llp/udp_inbox.h"
#include "llp/udp_outbox.h"
#include "provider/verbs/device/context.h"

namespace ewarp::verbs {

// A value: a request copies it when it is posted.
struct AddressHandle {
  llp::UdpDestination destination;   // without the port, which is the QP number's
  std::uint16_t max_payload = 1232;  // octets of UDP payload that fit the interface's MTU
  bool multicast = false;
  bool crc = true;  // option crc and the path
  const Pd* pd = nullptr;
};

// What ibv_create_ah() gives.
struct AddressHandleObject : ibv_ah {
  AddressHandle impl;
};

// Looks at interfaces and routes: not with the engine held. 0 or EINVAL: no GID, other family than that of the GID at
// sgid_index, no such index or port.
int make_address_handle(const Pd& pd, const ibv_ah_attr& attr, AddressHandle* out);

// To where it came from, from the address that it came to. Requires: that is no group.
llp::UdpDestination way_back(const llp::UdpArrival& arrival);

// Octets of UDP payload in a packet of this MTU.
std::uint16_t payload_of_mtu(unsigned mtu, bool v4);
in6_addr address_of(const ibv_gid& gid);
bool is_multicast(const in6_addr& address);

}  // namespace ewarp::verbs
