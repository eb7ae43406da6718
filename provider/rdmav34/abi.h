// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The private interface between libibverbs and its providers (rdma-core's libibverbs/driver.h, which no -dev package
// has): what we use of it, which is the same in IBVERBS_PRIVATE_34 (rdma-core 36 to 56) and 65.
//
// Another version is an entry in kReleases (releases.h) and in kSupported (abi.cc): its number, its list of operations,
// and where ibv_context lies. What differs in the size of public structs is met by reserved space behind our own.
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace ewarp::rdmav34 {

using Function = void (*)();

struct ListNode {
  ListNode *next, *previous;
};

enum MatchKind : std::uint8_t { kMatchEnd = 0, kMatchModalias = 2, kMatchDriverId = 3 };

struct MatchEntry {
  void* driver_data;
  union {
    const char* modalias;  // glob; "rdma_device:*N<name>*" matches a device's name
    std::uint64_t driver_id;
  } u;
  std::uint16_t vendor, device;
  std::uint8_t kind;
};
static_assert(sizeof(MatchEntry) == 24);

// A device as discovery found it.
struct SysfsDevice {
  ListNode entry;
  void* provider_data;
  const MatchEntry* match;
  unsigned flags;
  char sysfs_name[IBV_SYSFS_NAME_MAX];  // "uverbs1000"
  dev_t sysfs_cdev;
  char ibdev_name[IBV_SYSFS_NAME_MAX];  // "ewarp_lo"
  char ibdev_path[IBV_SYSFS_PATH_MAX];
  char modalias[512];
  std::uint64_t node_guid;
  std::uint32_t driver_id;
  std::uint32_t node_type;
  std::int32_t ibdev_idx;
  std::uint32_t num_ports;
  std::uint32_t abi_ver;
  timespec time_created;
};
static_assert(sizeof(SysfsDevice) == 992);

struct VerbsDevice;

struct DeviceOps {
  const char* name;
  std::uint32_t match_min_abi_version, match_max_abi_version;
  const MatchEntry* match_table;  // may not be null (rdma-core 44 walks it)
  const DeviceOps** static_providers;
  bool (*match_device)(SysfsDevice* found);
  void* (*alloc_context)(ibv_device* device, int command_fd, void* private_data);  // verbs_context
  void* (*import_context)(ibv_device* device, int command_fd);
  VerbsDevice* (*alloc_device)(SysfsDevice* found);
  void (*uninit_device)(VerbsDevice* device);
};
static_assert(sizeof(DeviceOps) == 72);

struct VerbsDevice {
  ibv_device device;
  const DeviceOps* ops;
  std::int32_t reference_count;
  ListNode entry;
  SysfsDevice* sysfs;
  std::uint64_t core_support;
};
static_assert(sizeof(VerbsDevice) == 712 && offsetof(VerbsDevice, ops) == 664 &&
              offsetof(VerbsDevice, reference_count) == 672 && offsetof(VerbsDevice, entry) == 680 &&
              offsetof(VerbsDevice, sysfs) == 696 && offsetof(VerbsDevice, core_support) == 704);

// What dereg_mr and rereg_mr are given.
struct VerbsMr {
  ibv_mr mr;
  std::uint32_t type;  // 0: an ordinary region
  std::int32_t access;
};
static_assert(sizeof(VerbsMr) == 56 && offsetof(VerbsMr, type) == 48 && offsetof(VerbsMr, access) == 52);

// Room for the library's structs in front of what is ours.
inline constexpr std::size_t kContextReserve = 1024;  // verbs_context
inline constexpr std::size_t kObjectReserve = 512;    // verbs_qp, verbs_cq, verbs_srq
inline constexpr std::size_t kMaxOps = 128;

struct Operation {
  std::string_view name;
  Function function;
};

// The libibverbs of this process.
class Library {
 public:
  // Null: libibverbs is not loaded yet, or it is none that we can serve (said once on stderr).
  static const Library* get();
  // get() has found one that we cannot serve.
  static bool refused();
  // The one that get() found: for functions that libibverbs itself has called.
  static const Library& here();

  void register_driver(const DeviceOps& ops) const { register_driver_(&ops); }
  // A context with `size` octets, verbs_context in front; takes command_fd. Null with errno.
  void* init_and_alloc_context(ibv_device* device, int command_fd, std::size_t size, std::uint32_t driver_id) const {
    return init_and_alloc_context_(device, command_fd, size, nullptr, driver_id);
  }
  // Closes its fds. The memory is the caller's.
  void uninit_context(void* verbs_context) const { uninit_context_(verbs_context); }
  // Operations that this version does not know are left out.
  void set_ops(void* verbs_context, std::span<const Operation> operations) const;

  ibv_context* context_in(void* verbs_context) const {
    return reinterpret_cast<ibv_context*>(static_cast<std::byte*>(verbs_context) + context_offset_);
  }
  void* memory_of(ibv_context* context) const { return reinterpret_cast<std::byte*>(context) - context_offset_; }

 private:
  bool resolve(void* handle);
  void (*register_driver_)(const DeviceOps*) = nullptr;
  void* (*init_and_alloc_context_)(ibv_device*, int, std::size_t, void*, std::uint32_t) = nullptr;
  void (*uninit_context_)(void*) = nullptr;
  void (*set_ops_)(void*, const void*) = nullptr;
  std::span<const std::string_view> op_names_;
  std::size_t context_offset_ = 0;
};

}  // namespace ewarp::rdmav34
