// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The libfabric that runs. It may be older or newer than the headers of this build: one binary serves all of them.
//
// libfabric has versions of the functions whose structs have grown. Who names one when it is linked gets that one for
// ever: the structs of its time, in which a newer libfabric then reads beyond the end. So these are looked up by name,
// which finds the newest. All other functions that we call have had one version since 1.0.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>

namespace ewarp::ofi {

// The newest version of the interface that was looked through for what programs may ask of a provider.
inline constexpr std::uint32_t kNewestVersion = FI_VERSION(2, 6);

// The newest version that programs may ask us for. libfabric hides a provider from programs that ask for a newer one.
std::uint32_t served_version();

// With all attributes, zeroed. Null: no memory.
fi_info* allocate_info();
// The whole list.
void free_info(fi_info* info);

// Names and values that libfabric 2 has taken back, or answers with a warning. Programs of older versions have them.
inline constexpr int kOldUnspecified = 0, kOldBasic = 1 << 0, kOldScalable = 1 << 1;  // of mr_mode before 1.5
inline constexpr std::uint64_t kNoOrder = 0;

}  // namespace ewarp::ofi
