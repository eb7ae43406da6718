// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/ud/arrival_gate.h"

#include <arpa/inet.h>

#include <algorithm>

#include "provider/verbs/ud/address_handle.h"

namespace ewarp::verbs {
namespace {

// Never on a wire (RFC 1122 section 3.2.1.3, RFC 4291 section 2.5.3).
bool is_loopback_address(const in6_addr& a) {
  return llp::is_v4(a) ? a.s6_addr[12] == 127 : IN6_IS_ADDR_LOOPBACK(&a);
}

constexpr KnownInterfaces::List kNone;

}  // namespace

void ArrivalGate::catch_up() {
  const std::uint32_t version = known_.version().load(std::memory_order_acquire);
  if (version == seen_) return;
  interfaces_ = known_.list();
  seen_ = version;
}

const KnownInterfaces::List& ArrivalGate::interfaces() const {
  return interfaces_ != nullptr ? *interfaces_ : kNone;
}

ArrivalGate::Owner ArrivalGate::owner_of(const in6_addr& to, unsigned interface) const {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = to;
  Owner found = Owner::nobody;
  for (const llp::Interface& i : interfaces()) {
    if (!llp::owns(i, reinterpret_cast<const sockaddr&>(address))) continue;
    if (i.index == interface) return Owner::device;
    found = Owner::others;
  }
  return found;
}

bool ArrivalGate::is_loopback(unsigned interface) const {
  return std::any_of(interfaces().begin(), interfaces().end(),
                     [&](const llp::Interface& i) { return i.index == interface && i.loopback; });
}

// Of a network of this interface, or of all.
bool ArrivalGate::is_broadcast(const in6_addr& to, unsigned interface) const {
  if (!llp::is_v4(to)) return false;
  const std::uint32_t address = ntohl(llp::v4_of(to).s_addr);
  if (address == INADDR_BROADCAST) return true;
  for (const llp::Interface& i : interfaces())
    for (const llp::Address& own : i.addresses) {
      if (i.index != interface || own.address.ss_family != AF_INET || own.prefix_length == 0 || own.prefix_length > 30)
        continue;
      const std::uint32_t host = ~std::uint32_t{0} >> own.prefix_length;
      if ((ntohl(reinterpret_cast<const sockaddr_in&>(own.address).sin_addr.s_addr) | host) == address) return true;
    }
  return false;
}

bool ArrivalGate::decide(const llp::UdpArrival& a, unsigned interface, Owner owner) const {
  switch (owner) {
    case Owner::device:
      // What this host sends to itself comes by the loopback. A link-local address of the same octets may be on another
      // link too (RFC 4291 section 2.5.6).
      if (IN6_IS_ADDR_LINKLOCAL(&a.to)) return a.interface == interface || is_loopback(a.interface);
      return true;
    case Owner::others:
      return false;
    case Owner::nobody:
      // A local route, or an address that has just come or gone.
      return a.interface == interface && !is_broadcast(a.to, interface);
  }
  return false;
}

// Groups have a socket of their own.
bool ArrivalGate::judge(const llp::UdpArrival& a, unsigned interface) {
  if (is_multicast(a.to) || a.interface == 0) return false;
  if (is_loopback_address(a.to) && a.interface != interface) return false;
  catch_up();
  const Owner owner = owner_of(a.to, interface);
  if (owner != Owner::device) known_.look_soon();
  if (!decide(a, interface, owner)) return false;
  last_[place_of(a, interface)] = {a.to, a.interface, interface, seen_};
  return true;
}

}  // namespace ewarp::verbs
