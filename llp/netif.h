// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The network interfaces of this machine, as the kernel reports them now.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ewarp::llp {

struct Address {
  sockaddr_storage address{};  // AF_INET or AF_INET6; port 0; scope id set for link-local
  unsigned prefix_length = 0;
  bool operator==(const Address& other) const;
};

struct Interface {
  std::string name;
  unsigned index = 0;
  bool up = false;       // IFF_UP
  bool running = false;  // carrier (IFF_RUNNING)
  bool loopback = false;
  unsigned mtu = 0;
  std::uint64_t speed_mbps = 0;  // 0: unknown (virtual interfaces)
  std::uint8_t mac[6] = {};
  std::vector<Address> addresses;  // IPv4 first, then global IPv6, then link-local
  bool operator==(const Interface&) const = default;
};

// All interfaces. Nothing: no socket can be had to ask with.
std::optional<std::vector<Interface>> look_at_interfaces();

// Where no socket can be had to ask with, these answer as they did the first time.

// All interfaces with at least one IPv4 or IPv6 address.
std::vector<Interface> interfaces();
// The state of one now; nothing if it is gone.
std::optional<Interface> interface(unsigned index);
// Index of the interface that owns this local address (127.0.0.0/8 is the loopback's); 0 if none.
unsigned interface_of(const sockaddr& local);
// Whether this local address is one of the interface's, as it was when it was asked for (127.0.0.0/8 is the
// loopback's).
bool owns(const Interface& interface, const sockaddr& local);
// True if the address is one of this host's own (then there is no wire between us and it).
bool is_local(const sockaddr& address);
// The source address the kernel would use towards `to` (a connected UDP socket asks it; nothing is sent). errno on
// failure: ENETUNREACH, EHOSTUNREACH.
// Returns 0 or a positive errno.
int source_for(const sockaddr& to, sockaddr_storage* source);
}  // namespace ewarp::llp
