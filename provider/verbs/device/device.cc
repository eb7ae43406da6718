// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/device/device.h"

#include <arpa/inet.h>
#include <endian.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "llp/made_once.h"
#include "provider/base/device_names.h"
#include "provider/base/log.h"
#include "provider/base/options.h"

namespace ewarp::verbs {
namespace {

// --- names and numbers ----------------------------------------------------------------------------------------------

std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// What tells this machine from others, the same in every process.
std::string machine_name() {
  char text[128] = {};
  if (FILE* file = fopen("/etc/machine-id", "re")) {
    const bool read = fgets(text, sizeof text, file) != nullptr;
    fclose(file);
    if (read && text[0] != '\0' && text[0] != '\n') return text;
  }
  return gethostname(text, sizeof text - 1) == 0 ? text : "";
}

// Modified EUI-64 (RFC 4291 appendix A). An interface without a MAC, such as the loopback, gets one made of the names
// of machine and interface, marked as locally administered.
std::uint64_t make_guid(const llp::Interface& interface) {
  std::uint8_t mac[6];
  std::memcpy(mac, interface.mac, sizeof mac);
  if (std::all_of(std::begin(mac), std::end(mac), [](std::uint8_t octet) { return octet == 0; })) {
    const std::uint64_t hash = fnv1a(interface.name, fnv1a(machine_name()));
    for (std::size_t i = 0; i < sizeof mac; ++i) mac[i] = static_cast<std::uint8_t>(hash >> (8 * i));
    mac[0] = static_cast<std::uint8_t>((mac[0] & 0xfc) | 0x02);
  }
  const std::uint8_t eui[8] = {
      static_cast<std::uint8_t>(mac[0] ^ 0x02), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  std::uint64_t guid = 0;
  for (const std::uint8_t octet : eui) guid = guid << 8 | octet;
  return guid;
}

// --- the port -------------------------------------------------------------------------------------------------------

ibv_mtu mtu_below(unsigned octets) {
  ibv_mtu best = IBV_MTU_256;
  for (const ibv_mtu mtu : {IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096})
    if (128u << mtu <= octets) best = mtu;
  return best;
}

struct Rate {
  double gbps;
  std::uint8_t width;  // 1: 1X, 2: 4X, 16: 2X
  std::uint8_t speed;  // 1: 2.5, 2: 5, 4: 10, 32: 25, 64: 50, 128: 100 Gb/s a lane
};
constexpr Rate kRates[] = {{2.5, 1, 1}, {5, 1, 2},    {10, 1, 4},   {20, 2, 2},   {25, 1, 32},
                           {40, 2, 4},  {50, 16, 32}, {100, 2, 32}, {200, 2, 64}, {400, 2, 128}};

// The combination whose rate is nearest in ratio; 10 Gb/s where the interface does not say (virtual ones).
const Rate& nearest_rate(std::uint64_t mbps) {
  const double wanted = std::log(mbps == 0 ? 10.0 : static_cast<double>(mbps) / 1000);
  return *std::min_element(std::begin(kRates), std::end(kRates), [&](const Rate& a, const Rate& b) {
    return std::abs(std::log(a.gbps) - wanted) < std::abs(std::log(b.gbps) - wanted);
  });
}

constexpr std::uint8_t kPhysDisabled = 3, kPhysPolling = 2, kPhysLinkUp = 5;
constexpr std::uint32_t kPortCmSupported = 1u << 16;

void fill_port(const std::optional<llp::Interface>& interface, ibv_port_attr& attr) {
  const bool active = interface && interface->up && interface->running;
  attr.state = active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr.phys_state = active ? kPhysLinkUp : interface && interface->up ? kPhysPolling : kPhysDisabled;
  attr.max_mtu = attr.active_mtu = mtu_below(interface ? interface->mtu : 0);
  const Rate& rate = nearest_rate(interface ? interface->speed_mbps : 0);
  attr.active_width = rate.width;
  attr.active_speed = rate.speed;
  attr.gid_tbl_len = interface ? static_cast<int>(interface->addresses.size()) : 0;
  attr.pkey_tbl_len = 1;
  attr.max_msg_sz = kMaxMessage;
  attr.max_vl_num = 1;
  attr.port_cap_flags = kPortCmSupported;
  attr.link_layer = IBV_LINK_LAYER_ETHERNET;
}

ibv_gid gid_of(const sockaddr_storage& address) {
  ibv_gid gid{};
  if (address.ss_family == AF_INET) {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
  } else {
    std::memcpy(gid.raw, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, 16);
  }
  return gid;
}

// --- which interfaces -----------------------------------------------------------------------------------------------

std::vector<llp::Interface> usable_interfaces() {
  auto all = llp::interfaces();
  const auto& named = options().interfaces;
  if (named.empty()) {
    std::erase_if(all, [](const llp::Interface& i) { return !i.up; });
    return all;
  }
  std::vector<llp::Interface> chosen;
  for (const auto& name : named) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const llp::Interface& i) { return i.name == name; });
    if (found != all.end())
      chosen.push_back(*found);
    else
      log::warn("interface {} is configured but does not exist or has no address", name);
  }
  return chosen;
}

}  // namespace

Device::Device(const llp::Interface& interface, unsigned index, bool twin)
    : name_(device_name(interface.name, twin)),
      interface_name_(interface.name),
      interface_index_(interface.index),
      index_(index),
      guid_(make_guid(interface)),
      loopback_(interface.loopback),
      twin_(twin),
      counters_(&stats::page().devices[index]) {
  snprintf(counters_->name, sizeof counters_->name, "%s", name_.c_str());
  snprintf(counters_->interface, sizeof counters_->interface, "%s", interface_name_.c_str());
}

void Device::follow(std::span<const llp::Interface> interfaces) {
  const unsigned former = interface_index();
  unsigned found = former;
  for (const llp::Interface& i : interfaces) {
    if (i.index == former) return;
    if (i.name == interface_name_) found = i.index;
  }
  interface_index_.store(found, std::memory_order_relaxed);
}

std::vector<ibv_gid> Device::gids() const {
  std::vector<ibv_gid> out;
  const auto interface = llp::interface(interface_index());
  if (!interface) return out;
  for (const auto& a : interface->addresses) out.push_back(gid_of(a.address));
  return out;
}

void Device::query(ibv_device_attr& attr) const {
  attr = {};
  snprintf(attr.fw_ver, sizeof attr.fw_ver, "%s", EWARP_VERSION);
  attr.node_guid = attr.sys_image_guid = htobe64(guid_);
  attr.max_mr_size = std::uint64_t{1} << 47;  // the address space of a process
  attr.page_size_cap = ~std::uint64_t{0xfff};
  attr.vendor_id = kVendorId;
  attr.vendor_part_id = kVendorPartId;
  attr.max_qp = kMaxQp;
  attr.max_qp_wr = kMaxQpWr;
  attr.device_cap_flags =
      IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  attr.max_sge = attr.max_sge_rd = kMaxSge;
  attr.max_cq = kMaxCq;
  attr.max_cqe = kMaxCqe;
  attr.max_mr = attr.max_mw = kMaxMr;
  attr.max_pd = kMaxPd;
  attr.max_srq = kMaxSrq;
  attr.max_srq_wr = kMaxSrqWr;
  attr.max_srq_sge = kMaxSge;
  attr.max_qp_rd_atom = attr.max_qp_init_rd_atom = kMaxRdAtomic;
  attr.max_res_rd_atom = kMaxRdAtomic * kMaxQp;
  attr.atomic_cap = IBV_ATOMIC_GLOB;  // done by the CPU's own atomic instructions
  attr.max_ah = kMaxAh;
  attr.max_mcast_grp = kMaxGroups;
  attr.max_mcast_qp_attach = kMaxGroupQps;
  attr.max_total_mcast_qp_attach = kMaxGroups * kMaxGroupQps;
  attr.max_pkeys = 1;
  attr.phys_port_cnt = 1;
}

int Device::query_port(std::uint8_t port, ibv_port_attr* attr, std::size_t size) const {
  if (port != 1) return EINVAL;
  ibv_port_attr full{};
  fill_port(llp::interface(interface_index()), full);
  std::memcpy(attr, &full, std::min(size, sizeof full));
  return 0;
}

int Device::query_speed(std::uint8_t port, std::uint64_t* speed) const {
  if (port != 1) return EINVAL;
  const auto interface = llp::interface(interface_index());
  *speed = static_cast<std::uint64_t>(nearest_rate(interface ? interface->speed_mbps : 0).gbps * 10);
  return 0;
}

// Behind all others, so that who takes the first device takes an RNIC.
void Device::add_twins(std::vector<std::unique_ptr<Device>>& all, const std::vector<llp::Interface>& interfaces) {
  for (std::size_t i = 0, count = all.size(); i < count; ++i) {
    auto twin = std::make_unique<Device>(interfaces[i], static_cast<unsigned>(all.size()), true);
    // In the octets that are ff:fe in every EUI-64 made of a MAC, so that it is no neighbour's.
    twin->guid_ = all[i]->guid_ ^ std::uint64_t{1} << 25;
    all.push_back(std::move(twin));
  }
}

std::vector<std::unique_ptr<Device>> discover() {
  std::vector<std::unique_ptr<Device>> found;
  const auto interfaces = usable_interfaces();
  for (const auto& interface : interfaces) {
    if (found.size() == kMaxInterfaces) {
      log::warn("only the first {} network interfaces become devices; choose others with ETHERWARP_INTERFACES",
                kMaxInterfaces);
      break;
    }
    auto device = std::make_unique<Device>(interface, static_cast<unsigned>(found.size()));
    // A VLAN or a bridge has the MAC of the interface below it, but librdmacm knows devices by their GUID.
    const bool taken =
        std::any_of(found.begin(), found.end(), [&](const auto& other) { return other->guid_ == device->guid_; });
    if (taken) device->guid_ ^= (fnv1a(interface.name) & 0xffff) << 24;
    found.push_back(std::move(device));
  }
  if (options().twin) Device::add_twins(found, interfaces);
  stats::page().device_count = static_cast<std::uint32_t>(found.size());
  if (found.empty()) log::error("no usable network interface: one must be up and have an IPv4 or IPv6 address");
  return found;
}

namespace {

struct Known {
  std::vector<std::unique_ptr<Device>> owned = discover();
  std::vector<Device*> all;

  Known() {
    for (const auto& device : owned) all.push_back(device.get());
  }
};

}  // namespace

std::span<Device* const> devices() {
  static constinit llp::MadeOnce<Known> known;
  return known.get([] { return Known(); }).all;
}

Device* find_device(const std::string& name) {
  for (Device* device : devices())
    if (device->name() == name) return device;
  return nullptr;
}

Device* device_of(const sockaddr& local) {
  const unsigned interface = llp::interface_of(local);
  if (interface == 0) return nullptr;
  for (Device* device : devices())
    if (device->interface_index() == interface && !device->twin()) return device;
  return nullptr;
}

}  // namespace ewarp::verbs
