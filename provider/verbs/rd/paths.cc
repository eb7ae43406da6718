// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/rd/paths.h"

#include <algorithm>

#include "llp/datagram_header.h"
#include "provider/verbs/ud/port.h"

namespace ewarp::verbs {
namespace {

constexpr std::uint8_t kEcn = 0x03, kEct0 = 0x02;  // RFC 3168 section 5

// 0: unknown.
unsigned mtu_of(unsigned interface) {
  const auto all = known_interfaces().list();
  if (all == nullptr) return 0;
  const auto i = std::find_if(all->begin(), all->end(), [&](const llp::Interface& x) { return x.index == interface; });
  return i == all->end() ? 0 : i->mtu;
}

std::uint64_t mix(const void* address, std::uint64_t seed) {
  std::uint64_t half[2];
  std::memcpy(half, address, sizeof half);
  std::uint64_t h = (half[0] ^ seed) * 0x9e3779b97f4a7c15u;
  h = (h ^ h >> 32 ^ half[1]) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 32;
}

}  // namespace

std::size_t RdPaths::Hash::operator()(const Name& n) const {
  return mix(n.ip.data(), std::uint64_t{n.local} << 32 | n.device);
}

// A path that nobody uses may be asked for again, by who knows no other: it is looked for before the sweep.
RdPath& RdPaths::open(const Name& name, const RdPath* known) {
  RdPath* p = find(name);
  if (p == nullptr) {
    if (paths_.size() >= sweep_at_) sweep();
    p = &paths_[name];
  }
  if (p->users == 0 && known != nullptr) *p = *known;
  if (p->max_payload == 0) p->max_payload = AddressHandle{}.max_payload;
  ++p->users;
  return *p;
}

void RdPaths::close(const Name& name) {
  RdPath* p = find(name);
  if (p != nullptr && p->users > 0) --p->users;
}

RdPath* RdPaths::find(const Name& name) {
  const auto it = paths_.find(name);
  return it == paths_.end() ? nullptr : &it->second;
}

bool RdPaths::limit(const Ip& ip, std::uint16_t max_payload) {
  bool news = false;
  for (auto& [name, p] : paths_) {
    if (name.ip != ip || p.max_payload <= max_payload) continue;
    p.max_payload = max_payload;
    p.to.segment_limit = std::min(p.to.segment_limit, max_payload);
    news = true;
  }
  return news;
}

void RdPaths::sweep() {
  std::erase_if(paths_, [](const auto& each) { return each.second.users == 0; });
  sweep_at_ = std::max<std::size_t>(64, 2 * paths_.size());
}

RdPath RdPaths::of(const AddressHandle& ah) {
  RdPath p{ah.destination, ah.max_payload, ah.crc};
  p.to.tos = static_cast<std::uint8_t>((p.to.tos & ~kEcn) | kEct0);
  return p;
}

RdPath RdPaths::of(const llp::UdpArrival& a) {
  RdPath p;
  p.to = way_back(a);
  p.to.tos = kEct0;
  p.crc = !may_lack_crc(a);
  const bool v4 = llp::is_v4(a.to);
  const bool local = came_by_loopback(a) || std::memcmp(&a.from.sin6_addr, &a.to, sizeof a.to) == 0;
  p.max_payload = payload_of_mtu(local ? ~0u : mtu_of(a.interface), v4);
  p.to.segment_limit = std::min(p.max_payload, std::uint16_t{llp::kMaxDatagram / 2});
  return p;
}

RdPaths::Ip RdPaths::ip_of(const in6_addr& address) {
  Ip ip;
  std::memcpy(ip.data(), &address, ip.size());
  return ip;
}

// Addresses of IPv4 differ in the upper half of the last factor alone. The other factor is odd: the lower halves of the
// products are equal, and the upper ones are not.
std::uint32_t RdPaths::local_of(const in6_addr& address) {
  return static_cast<std::uint32_t>(mix(&address, 0));
}

llp::rd::Address RdPaths::address_of(const llp::UdpArrival& a) {
  return {ip_of(a.from.sin6_addr), ntohs(a.from.sin6_port), local_of(a.to)};
}

}  // namespace ewarp::verbs
