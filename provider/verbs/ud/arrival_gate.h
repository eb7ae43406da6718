// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether a datagram that arrived is for the device of a queue pair: the socket is bound to all addresses of the host,
// a queue pair belongs to one of its interfaces (docs/protocol/datagrams.md section 4).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "llp/netif.h"
#include "llp/udp_inbox.h"

namespace ewarp::verbs {

// The answers are those of the interfaces as they were looked at last: at the first datagram, when the kernel has told
// of a change, and for an address that was nobody's, as often as kLookAgain allows. What was let in last is remembered.
// Threading: engine held.
class ArrivalGate {
 public:
  using Clock = std::chrono::steady_clock;
  using Look = std::vector<llp::Interface> (*)();
  // A host without port events (a sandbox) knows an address that is new to it this much later.
  static constexpr auto kLookAgain = std::chrono::milliseconds(100);

  ArrivalGate();
  // changes: grows with every change of what `look` tells.
  ArrivalGate(Look look, const std::atomic<std::uint32_t>& changes) : look_(look), changes_(changes) {}

  // interface: of the device.
  bool admits(const llp::UdpArrival& a, unsigned interface) {
    const Admitted& last = last_[place_of(a, interface)];
    if (last.interface == interface && last.by == a.interface &&
        last.seen == changes_.load(std::memory_order_relaxed) && std::memcmp(&last.to, &a.to, sizeof a.to) == 0)
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
  bool decide(const llp::UdpArrival& a, unsigned interface);
  Owner owner_of(const in6_addr& to, unsigned interface) const;
  bool is_loopback(unsigned interface) const;
  bool is_broadcast(const in6_addr& to, unsigned interface) const;
  void look();

  static constexpr std::size_t kPlaces = 16;  // a device has an address or two of each family
  const Look look_;
  const std::atomic<std::uint32_t>& changes_;
  std::vector<llp::Interface> interfaces_;
  bool looked_ = false;
  std::uint32_t seen_ = 0;  // changes
  Clock::time_point looked_at_;
  std::array<Admitted, kPlaces> last_{};
};

}  // namespace ewarp::verbs
