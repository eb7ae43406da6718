// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What our devices are called where the kernel's have names.
#pragma once

#include <sys/types.h>

#include <string>

#include "provider/verbs/device/device.h"

namespace ewarp::host {

// uverbs numbers and device numbers that no kernel gives out: its own begin at 0 and at 231:192.
inline constexpr unsigned kFirstUverbs = 1000;
inline constexpr unsigned kMajor = 3999;
inline constexpr unsigned kCmMinor = 255;
inline constexpr unsigned kUverbsAbi = 1;               // of our command interface; the provider accepts this one
inline constexpr unsigned kVerbsCoreAbi = 6;            // IB_USER_VERBS_ABI_VERSION
inline constexpr unsigned kCmAbi = 4;                   // RDMA_USER_CM_ABI_VERSION
inline constexpr std::uint32_t kDriverId = 0x45574152;  // UVERBS_DRIVER_ID: no kernel driver's

std::string uverbs_name(const verbs::Device& device);  // "uverbs1000"
dev_t uverbs_number(const verbs::Device& device);
dev_t cm_number();
verbs::Device* find_uverbs(const std::string& name);

}  // namespace ewarp::host
