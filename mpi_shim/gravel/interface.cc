// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/gravel/interface.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace ewarp::gravel {
namespace {

using channel::Address;

struct Candidate {
  Address address;
  int rank;  // the lowest first
};

// Where would a packet to a far address come from? Nothing is sent.
bool has_default_route(const Address& own) {
  const auto far = Address::parse(own.v4() ? "240.0.0.1:9" : "[2001:db8::1]:9")->socket_address();
  const int fd = socket(far.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_storage from{};
  socklen_t length = sizeof from;
  const bool known = connect(fd, reinterpret_cast<const sockaddr*>(&far), sizeof far) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&from), &length) == 0;
  close(fd);
  const auto source = known ? Address::from(reinterpret_cast<sockaddr&>(from)) : std::nullopt;
  return source && source->ip == own.ip;
}

// A link-local address means nothing without its interface, which the channel's addresses do not carry.
bool link_local(const Address& a) {
  return !a.v4() && a.ip[0] == 0xfe && (a.ip[1] & 0xc0) == 0x80;
}

int rank(const Address& address, bool loopback) {
  if (loopback) return address.v4() ? 4 : 5;
  return (address.v4() ? 0 : 1) + (has_default_route(address) ? 0 : 2);
}

std::vector<Candidate> candidates() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<Candidate> out;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    const auto address = i->ifa_addr != nullptr ? Address::from(*i->ifa_addr) : std::nullopt;
    if (!address || (i->ifa_flags & IFF_UP) == 0 || link_local(*address)) continue;
    out.push_back({*address, rank(*address, (i->ifa_flags & IFF_LOOPBACK) != 0)});
  }
  std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) { return a.rank < b.rank; });
  return out;
}

}  // namespace

Interface find_interface(const std::string& wanted, std::string* error) {
  if (!wanted.empty()) {
    const auto address = Address::parse(wanted);
    if (address) return {*address, channel::Device::open(*address, error)};
    *error = "\"" + wanted + "\" is no address; ip:port is";
    return {};
  }
  *error = "no network interface is up";
  for (const Candidate& c : candidates())
    if (auto device = channel::Device::open(c.address, error)) return {c.address, std::move(device)};
  return {};
}

}  // namespace ewarp::gravel
