// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/interfaces.h"

#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "llp/mutex.h"
#include "mpi_shim/channel/verbs/device.h"
#include "mpi_shim/ofi/provider.h"

namespace ewarp::ofi {
namespace {

using channel::Address;

// The names of the devices that libibverbs knows.
std::vector<std::string> device_names() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) out.emplace_back(ibv_get_device_name(list[i]));
  if (list != nullptr) ibv_free_device_list(list);
  return out;
}

std::string network_of(Address address, const sockaddr* mask) {
  const auto bits = mask != nullptr ? Address::from(*mask) : std::nullopt;
  int length = 0;
  for (std::size_t i = 0; i < address.ip.size(); ++i) {
    // The part that says "this is IPv4" is no part of the mask.
    const std::uint8_t octet = address.v4() && i < 12 ? 0xff : bits ? bits->ip[i] : 0;
    address.ip[i] &= octet;
    length += address.v4() && i < 12 ? 0 : __builtin_popcount(octet);
  }
  address.port = 0;
  const std::string text = address.text();
  return text.substr(0, text.rfind(':')) + "/" + std::to_string(length);
}

// A link-local address means nothing without its interface, which the channel's addresses do not carry.
bool usable(const ifaddrs& i) {
  if (i.ifa_addr == nullptr || (i.ifa_flags & IFF_UP) == 0) return false;
  const auto address = Address::from(*i.ifa_addr);
  return address && (address->v4() || !(address->ip[0] == 0xfe && (address->ip[1] & 0xc0) == 0x80));
}

std::string host_of(const Address& address) {
  const std::string text = address.text();
  return text.substr(0, text.rfind(':'));
}

std::vector<Interface> candidates() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  char* wanted = nullptr;
  fi_param_get_str(&provider, "iface", &wanted);
  std::vector<Interface> out;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (!usable(*i)) continue;
    const Address address = *Address::from(*i->ifa_addr);
    if (wanted != nullptr && *wanted != '\0' && wanted != std::string(i->ifa_name) && wanted != host_of(address))
      continue;
    out.push_back({.name = i->ifa_name,
                   .network = network_of(address, i->ifa_netmask),
                   .device = {},
                   .address = address,
                   .loopback = (i->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return out;
}

// Which interface has the default route is asked of the kernel: where would a packet to a far address go?
int rank(const Interface& i) {
  static const char* const kFar[] = {"240.0.0.1:9", "[2001:db8::1]:9"};
  if (i.loopback) return i.address.v4() ? 4 : 5;
  const auto source = source_towards(*Address::parse(kFar[i.address.v4() ? 0 : 1]));
  const bool has_default_route = source && source->ip == i.address.ip;
  return (i.address.v4() ? 0 : 1) + (has_default_route ? 0 : 2);
}

// What was found the last time, and what it depends on. To ask librdmacm for the device of an address takes a
// millisecond, and a program asks for interfaces again and again.
struct World {
  std::vector<std::string> devices;
  std::vector<Interface> candidates;  // without devices
  std::vector<Interface> interfaces;  // those that have one
};

// False: an answer may be another one the next time, as a descriptor or memory was missing.
bool look_for_devices(World& world) {
  bool for_good = true;
  for (Interface i : world.candidates) {
    std::string error;
    int code = 0;
    const auto device = channel::Device::open(i.address, &error, &code);
    if (!device) {
      FI_INFO(&provider, FI_LOG_FABRIC, "%s is left out: %s\n", i.name.c_str(), error.c_str());
      for_good = for_good && (code == ENODEV || code == EADDRNOTAVAIL);
      continue;
    }
    i.device = device->name();
    world.interfaces.push_back(std::move(i));
  }
  return for_good;
}

std::vector<Interface> in_order(const std::vector<Interface>& interfaces) {
  std::vector<std::pair<int, const Interface*>> ranked;
  for (const Interface& i : interfaces) ranked.emplace_back(rank(i), &i);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Interface> out;
  for (const auto& [ignored, i] : ranked) out.push_back(*i);
  return out;
}

}  // namespace

std::optional<Address> source_towards(const Address& destination) {
  sockaddr_storage to = destination.socket_address();
  const int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  sockaddr_storage from{};
  socklen_t length = sizeof from;
  const bool known = connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&from), &length) == 0;
  close(fd);
  if (!known) return std::nullopt;
  auto out = Address::from(reinterpret_cast<sockaddr&>(from));
  if (out) out->port = 0;
  return out;
}

std::vector<Interface> find_interfaces() {
  static llp::Mutex mutex;
  static World* const known = new World;  // programs ask at their end, too
  World now{.devices = device_names(), .candidates = {}, .interfaces = {}};
  // librdmacm complains aloud where there is no RDMA at all, so it is not asked then.
  if (now.devices.empty()) return {};
  now.candidates = candidates();
  const llp::Guard lock(mutex);
  if (now.devices == known->devices && now.candidates == known->candidates) return in_order(known->interfaces);
  const bool for_good = look_for_devices(now);
  std::vector<Interface> out = in_order(now.interfaces);
  if (for_good) *known = std::move(now);
  return out;
}

}  // namespace ewarp::ofi
