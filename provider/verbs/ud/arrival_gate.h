// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether a datagram that arrived is for the device of a queue pair: the socket is bound to all addresses of the host,
// a queue pair belongs to one of its interfaces (docs/protocol/datagrams.md section 4).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>

#include "llp/udp_inbox.h"
#include "provider/verbs/device/known_interfaces.h"

namespace ewarp::verbs {

// The answers are those of the interfaces as they were looked at last; the gate does not look itself. For an address
// that is not the device's it asks for another look: a host without port events (a sandbox) learns of changes by that.
// What was let in last is remembered.
// Threading: engine held.
class ArrivalGate {
 public:
  explicit ArrivalGate(KnownInterfaces& known = known_interfaces()) : known_(known), seen_(known.version() - 1) {}

  // interface: of the device.
  bool admits(const llp::UdpArrival& a, unsigned interface) {
    const Admitted& last = last_[place_of(a, interface)];
    if (last.interface == interface && last.by == a.interface &&
        last.seen == known_.version().load(std::memory_order_relaxed) && std::memcmp(&last.to, &a.to, sizeof a.to) == 0)
      return true;
    return judge(a, interface);
  }

 private:
  struct Admitted {
    in6_addr to{};
    unsigned by = 0, interface = 0;  // 0: none
    std::uint32_t seen = 0;
  };
  enum class Owner { device, others, nobody };

  static std::size_t place_of(const llp::UdpArrival& a, unsigned interface) {
    return (a.to.s6_addr[15] ^ interface ^ a.interface << 1) % kPlaces;
  }
  bool judge(const llp::UdpArrival& a, unsigned interface);
  bool decide(const llp::UdpArrival& a, unsigned interface, Owner owner) const;
  Owner owner_of(const in6_addr& to, unsigned interface) const;
  bool is_loopback(unsigned interface) const;
  bool is_broadcast(const in6_addr& to, unsigned interface) const;
  void catch_up();
  const KnownInterfaces::List& interfaces() const;

  static constexpr std::size_t kPlaces = 16;  // a device has an address or two of each family
  KnownInterfaces& known_;
  std::shared_ptr<const KnownInterfaces::List> interfaces_;  // null: none are known yet
  std::uint32_t seen_;                                       // their version
  std::array<Admitted, kPlaces> last_{};
};

}  // namespace ewarp::verbs
