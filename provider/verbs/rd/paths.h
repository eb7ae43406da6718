// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How hosts are reached: what an association's datagrams need beside an address and a port.
#pragma once

#include <cstdint>
#include <cstring>
#include <unordered_map>

#include "llp/rd/types.h"
#include "llp/udp_inbox.h"
#include "llp/udp_outbox.h"
#include "provider/verbs/ud/address_handle.h"

namespace ewarp::verbs {

struct RdPath {
  llp::UdpDestination to;         // without the port
  std::uint16_t max_payload = 0;  // octets of UDP payload that need no fragments
  bool crc = true;
  std::uint32_t users = 0;  // associations
};

// All associations of a device between an address of ours and a host go the same way, that of the first of them.
// Threading: engine held; the static functions by any thread.
class RdPaths {
 public:
  using Ip = std::array<std::byte, 16>;
  struct Name {
    Ip ip;                // the host
    std::uint32_t local;  // local_of() the address of ours
    unsigned device;
    bool operator==(const Name&) const = default;
  };

  // An association begins. known: what its requests, or the datagram that opens it, say of the way; may be null if
  // there has been an association of this name.
  RdPath& open(const Name& name, const RdPath* known);
  void close(const Name& name);
  RdPath* find(const Name& name);
  // The host at ip takes datagrams up to this size only. True: that is news.
  bool limit(const Ip& ip, std::uint16_t max_payload);

  static RdPath of(const AddressHandle& ah);
  static RdPath of(const llp::UdpArrival& arrival);
  static Ip ip_of(const in6_addr& address);
  // Stands for an address of ours in keys and names, which have room for so much. No two addresses of IPv4 have the
  // same; two of IPv6 have it once in 2^32, and then go the same way.
  static std::uint32_t local_of(const in6_addr& address);
  // Where it came from.
  static llp::rd::Address address_of(const llp::UdpArrival& arrival);

 private:
  struct Hash {
    std::size_t operator()(const Name& n) const;
  };
  void sweep();

  std::unordered_map<Name, RdPath, Hash> paths_;
  std::size_t sweep_at_ = 64;
};

}  // namespace ewarp::verbs
