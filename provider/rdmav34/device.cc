// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The device before it is opened: how libibverbs knows it as ours.
#include <cstdlib>
#include <cstring>

#include "provider/host/names.h"
#include "provider/rdmav34/objects.h"

namespace ewarp::rdmav34 {
namespace {

// By driver number where netlink told it, by name where the device was found in sysfs. The name is only a hint:
// match_device() decides.
const MatchEntry kMatches[] = {
    {.driver_data = nullptr, .u = {.driver_id = host::kDriverId}, .vendor = 0, .device = 0, .kind = kMatchDriverId},
    {.driver_data = nullptr,
     .u = {.modalias = "rdma_device:*Newarp*"},
     .vendor = 0,
     .device = 0,
     .kind = kMatchModalias},
    {.driver_data = nullptr, .u = {.driver_id = 0}, .vendor = 0, .device = 0, .kind = kMatchEnd},
};

bool match_device(SysfsDevice* found) {
  bool ours = false;
  guarded([&] {
    const verbs::Device* device = verbs::find_device(found->ibdev_name);
    ours = device != nullptr && host::uverbs_name(*device) == found->sysfs_name;
    return 0;
  });
  return ours;
}

VerbsDevice* alloc_device(SysfsDevice* found) {
  auto* object = static_cast<DeviceObject*>(calloc(1, sizeof(DeviceObject)));
  if (object == nullptr) return nullptr;
  guarded([&] {
    object->device = verbs::find_device(found->ibdev_name);
    return 0;
  });
  return &object->base;
}

void uninit_device(VerbsDevice* device) {
  free(reinterpret_cast<DeviceObject*>(device));
}

}  // namespace

const DeviceOps& device_ops() {
  static const DeviceOps ops = {
      .name = "etherwarp",
      .match_min_abi_version = host::kUverbsAbi,
      .match_max_abi_version = host::kUverbsAbi,
      .match_table = kMatches,
      .static_providers = nullptr,
      .match_device = match_device,
      .alloc_context = alloc_context,
      .import_context = nullptr,
      .alloc_device = alloc_device,
      .uninit_device = uninit_device,
  };
  return ops;
}

}  // namespace ewarp::rdmav34
