// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One RDMA device per usable network interface, and on demand a second one, its twin: the same RNIC as programs that
// know InfiniBand and RoCE only would have it (docs/design/provider.md).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llp/netif.h"
#include "provider/base/stats.h"

namespace ewarp::verbs {

inline constexpr int kMaxQpWr = 32768;
inline constexpr int kMaxSge = 32;
inline constexpr int kMaxInline = 1024;  // octets
inline constexpr int kMaxCqe = 4 * 1024 * 1024;
inline constexpr int kMaxRdAtomic = 128;
inline constexpr std::uint32_t kMaxMessage = 1u << 31;
inline constexpr int kMaxQp = 65536;
inline constexpr int kMaxCq = 65536;
inline constexpr int kMaxMr = 1 << 20;
inline constexpr int kMaxPd = 65536;
inline constexpr int kMaxSrq = 65536;
inline constexpr int kMaxAh = 1 << 20;
inline constexpr int kMaxGroups = 20;  // net.ipv4.igmp_max_memberships, as it usually is
inline constexpr int kMaxGroupQps = 256;
inline constexpr int kMaxSrqWr = 1 << 18;

// Who we are in ibv_device_attr: a locally administered OUI (no vendor has it) and our part number.
inline constexpr std::uint32_t kVendorId = 0x024557;
inline constexpr std::uint32_t kVendorPartId = 1;
// Device indices of the kernel's own RDMA devices count from 0; ours never meet them.
inline constexpr std::uint32_t kFirstRdmaIndex = 0x10000;
inline constexpr std::uint16_t kDefaultPkey = 0xffff;
inline constexpr std::size_t kMaxInterfaces = stats::kMaxDevices / 2;  // each may have a twin

class Device {
 public:
  Device(const llp::Interface& interface, unsigned index, bool twin = false);

  const std::string& name() const { return name_; }  // "ewarp_lo", "ewarpx_lo"
  const std::string& interface_name() const { return interface_name_; }
  // That of the interface at present: one that is deleted and made anew under its name has another one.
  unsigned interface_index() const { return interface_index_.load(std::memory_order_relaxed); }
  // These are the host's interfaces now. The device stays with its interface while that is there, whatever it is
  // called; then with the one of its name.
  void follow(std::span<const llp::Interface> interfaces);
  unsigned index() const { return index_; }  // position in devices()
  // What netlink and rdma_cm call the device index (ibdev_index).
  std::uint32_t rdma_index() const { return kFirstRdmaIndex + index_; }
  std::uint64_t guid() const { return guid_; }  // host order; EUI-64 of the MAC, never 0, stable across processes
  bool loopback() const { return loopback_; }
  // Of type CA with IB's rules for queue pairs. rdma_cm has nothing to do with it.
  bool twin() const { return twin_; }
  ibv_node_type node_type() const { return twin_ ? IBV_NODE_CA : IBV_NODE_RNIC; }

  // GID table as the interface stands now: IPv4-mapped addresses first, then IPv6. Never empty while an address exists.
  std::vector<ibv_gid> gids() const;
  // All fields of ibv_device_attr / ibv_port_attr; the port's state, MTU and speed are those of the interface now.
  void query(ibv_device_attr& attr) const;
  // 0, or EINVAL for a port other than 1. Fills only the first `size` octets (the struct grew between releases).
  int query_port(std::uint8_t port, ibv_port_attr* attr, std::size_t size) const;
  // The port's lanes times their speed now, in units of 100 Mb/s. 0, or EINVAL for a port other than 1.
  int query_speed(std::uint8_t port, std::uint64_t* speed) const;

  stats::DevicePage& counters() const { return *counters_; }

 private:
  friend std::vector<std::unique_ptr<Device>> discover();
  static void add_twins(std::vector<std::unique_ptr<Device>>& all, const std::vector<llp::Interface>& interfaces);
  std::string name_, interface_name_;
  std::atomic<unsigned> interface_index_;
  unsigned index_;
  std::uint64_t guid_;
  bool loopback_, twin_;
  stats::DevicePage* counters_;
};

// What devices() calls once.
std::vector<std::unique_ptr<Device>> discover();

// The devices of this process, found at first use: options().interfaces, or every interface that is up and has an
// address. Thread-safe; the pointers live as long as the process.
std::span<Device* const> devices();
Device* find_device(const std::string& name);
// The RNIC device (never a twin) whose interface owns this local address; nullptr if none.
Device* device_of(const sockaddr& local);

}  // namespace ewarp::verbs
