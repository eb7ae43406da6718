#include "provider/verbs/address_handle.h"

#include <cerrno>
#include <cstring>

#include "llp/datagram_header.h"
#include "llp/netif.h"
#include "provider/verbs/log.h"
#include "provider/verbs/options.h"

namespace ewarp::verbs {
namespace {

constexpr std::uint8_t kEcn = 0x03;
constexpr std::size_t kIpAndUdp = 48;  // octets of IPv6 and UDP headers, the larger case

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

// Up to this size the kernel can be given many datagrams as one: none of them may need fragments.
std::uint16_t segment_limit(const Device& device, bool local) {
  if (local) return llp::kMaxDatagram / 2;
  const auto interface = llp::interface(device.interface_index());
  return interface && interface->mtu > kIpAndUdp
             ? static_cast<std::uint16_t>(std::min<std::size_t>(interface->mtu - kIpAndUdp, llp::kMaxDatagram / 2))
             : std::uint16_t{0};
}

// The kernel may name another interface than the loopback for what this host sends to itself, and the receiver believes
// the loopback alone: so no CRC is left out unless both ends are there.
bool stays_on_loopback(const Device& device, const sockaddr_in6& to, bool multicast) {
  if (!device.loopback() || multicast) return device.loopback();
  const Device* there = device_of(reinterpret_cast<const sockaddr&>(to));
  return there != nullptr && there->loopback();
}

bool needs_crc(bool loopback) {
  switch (options().crc) {
    case CrcPolicy::always:
      return true;
    case CrcPolicy::never:
      return false;
    case CrcPolicy::by_path:
      break;
  }
  return !loopback;
}

}  // namespace

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
  if (IN6_IS_ADDR_LINKLOCAL(&d.to.sin6_addr) || ah.multicast) {
    d.to.sin6_scope_id = llp::is_v4(d.to.sin6_addr) ? 0 : device.interface_index();
    d.interface = device.interface_index();
  }
  const bool local = ah.multicast ? device.loopback() : llp::is_local(reinterpret_cast<const sockaddr&>(d.to));
  ah.crc = needs_crc(stays_on_loopback(device, d.to, ah.multicast));
  if (!ah.multicast) d.segment_limit = segment_limit(device, local);
  *out = ah;
  return 0;
}

}  // namespace ewarp::verbs
