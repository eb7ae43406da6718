// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What we offer, and whether it is what somebody asks for.
#pragma once

#include <rdma/fabric.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mpi_shim/ofi/interfaces.h"
#include "mpi_shim/ofi/provider.h"

namespace ewarp::ofi {

// What can be asked for. Secondary ones are told unasked.
inline constexpr std::uint64_t kPrimaryCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
inline constexpr std::uint64_t kMessageDirections = FI_SEND | FI_RECV;
inline constexpr std::uint64_t kMemoryDirections = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
inline constexpr std::uint64_t kDomainCaps = FI_LOCAL_COMM | FI_REMOTE_COMM;
inline constexpr std::uint64_t kSecondaryCaps = FI_MULTI_RECV | FI_SOURCE | kDomainCaps;
inline constexpr std::uint64_t kCaps =
    kPrimaryCaps | kMessageDirections | kMemoryDirections | FI_DIRECTED_RECV | kSecondaryCaps;
inline constexpr std::uint64_t kSendCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
inline constexpr std::uint64_t kReceiveCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV | FI_REMOTE_READ |
                                              FI_REMOTE_WRITE | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;
// Puts and messages arrive in the order in which they were asked for.
inline constexpr std::uint64_t kMessageOrder = FI_ORDER_SAS | FI_ORDER_SAW;
// Peers name our memory by the adapter's keys and by its addresses.
inline constexpr int kMemoryMode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

// Octets that may be injected, where an endpoint of the channel takes so many.
inline std::size_t inject_size(std::size_t most_injected) {
  return std::min(kInjectSize, most_injected);
}

// fi_getinfo for this provider: 0, or a negative code.
int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
             fi_info** out);

// Fills in what we offer at this interface; strings and addresses are allocated for fi_freeinfo(). False: no memory.
bool describe(fi_info& info, const Interface& interface, std::uint32_t version, const fi_info* hints);

// Whether somebody who registers memory under these modes does what we ask in those.
bool memory_mode_fits(int wanted, int offered, std::uint32_t version);

// Why the hints ask for what we do not have; null if they do not.
const char* mismatch(const fi_info& hints, const fi_info& offer, std::uint32_t version);

}  // namespace ewarp::ofi
