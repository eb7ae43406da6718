// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/ud/address_handle.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "llp/datagram_header.h"
#include "llp/netif.h"
#include "provider/base/log.h"
#include "provider/base/options.h"

namespace ewarp::verbs {
namespace {

constexpr std::uint8_t kEcn = 0x03;
constexpr std::uint16_t kMostSegment = llp::kMaxDatagram / 2;
constexpr unsigned kUdpOnV4 = 28, kUdpOnV6 = 48;  // octets of headers
constexpr unsigned kLeastMtu = 1280;              // RFC 8200 section 5

const char* problem_of(const ibv_ah_attr& attr, const std::vector<ibv_gid>& gids) {
  if (attr.is_global == 0)
    return "the address has no GID (is_global = 0); programs take an option for it, such as -g 0 or -x 0";
  if (attr.port_num != 1) return "the address names a port other than 1";
  if (attr.grh.sgid_index >= gids.size()) return "there is no such GID index";
  const in6_addr to = address_of(attr.grh.dgid);
  if (IN6_IS_ADDR_UNSPECIFIED(&to)) return "the destination is unspecified";
  if (llp::is_v4(to) != llp::is_v4(address_of(gids[attr.grh.sgid_index]))) return "one GID is IPv4, the other IPv6";
  return nullptr;
}

// The kernel may name another interface than the loopback for what this host sends to itself, and the receiver believes
// the loopback alone: so no CRC is left out unless both ends are there.
bool stays_on_loopback(const Device& device, const sockaddr_in6& to, bool multicast) {
  if (!device.loopback() || multicast) return device.loopback();
  const Device* there = device_of(reinterpret_cast<const sockaddr&>(to));
  return there != nullptr && there->loopback();
}

// The kernel sends from or to a link-local address only where the interface is told (RFC 4007 section 6).
bool needs_interface(const llp::UdpDestination& d) {
  return IN6_IS_ADDR_LINKLOCAL(&d.source) || IN6_IS_ADDR_LINKLOCAL(&d.to.sin6_addr);
}

}  // namespace

llp::UdpDestination way_back(const llp::UdpArrival& a) {
  llp::UdpDestination d;
  d.to = a.from;
  d.source = a.to;
  if (needs_interface(d)) d.interface = a.interface;
  return d;
}

std::uint16_t payload_of_mtu(unsigned mtu, bool v4) {
  const unsigned octets = std::max(mtu, kLeastMtu) - (v4 ? kUdpOnV4 : kUdpOnV6);
  return static_cast<std::uint16_t>(std::min<std::size_t>(octets, llp::kMaxDatagram));
}

in6_addr address_of(const ibv_gid& gid) {
  in6_addr a;
  std::memcpy(&a, gid.raw, sizeof a);
  return a;
}

bool is_multicast(const in6_addr& a) {
  return llp::is_v4(a) ? (a.s6_addr[12] & 0xf0) == 0xe0 : IN6_IS_ADDR_MULTICAST(&a);
}

int make_address_handle(const Pd& pd, const ibv_ah_attr& attr, AddressHandle* out) {
  const Device& device = pd.context.device();
  const auto gids = device.gids();
  if (const char* wrong = problem_of(attr, gids)) {
    log::warn("ibv_create_ah(): {}", wrong);
    return EINVAL;
  }
  AddressHandle ah;
  ah.pd = &pd;
  llp::UdpDestination& d = ah.destination;
  d.to.sin6_family = AF_INET6;
  d.to.sin6_addr = address_of(attr.grh.dgid);
  d.source = address_of(gids[attr.grh.sgid_index]);
  d.tos = attr.grh.traffic_class & static_cast<std::uint8_t>(~kEcn);
  d.ttl = attr.grh.hop_limit;
  ah.multicast = is_multicast(d.to.sin6_addr);
  if (ah.multicast || needs_interface(d)) {
    d.to.sin6_scope_id = llp::is_v4(d.to.sin6_addr) ? 0 : device.interface_index();
    d.interface = device.interface_index();
  }
  const bool local = ah.multicast ? device.loopback() : llp::is_local(reinterpret_cast<const sockaddr&>(d.to));
  ah.crc = asks_for_crc(stays_on_loopback(device, d.to, ah.multicast));
  const auto interface = llp::interface(device.interface_index());
  const bool v4 = llp::is_v4(d.to.sin6_addr);
  ah.max_payload = local ? std::uint16_t{llp::kMaxDatagram} : payload_of_mtu(interface ? interface->mtu : 0, v4);
  // The kernel can be given many datagrams as one, but none that needs fragments.
  if (!ah.multicast && (local || interface))
    d.segment_limit = std::min(payload_of_mtu(local ? ~0u : interface->mtu, v4), kMostSegment);
  *out = ah;
  return 0;
}

}  // namespace ewarp::verbs
