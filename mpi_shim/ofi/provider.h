// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The provider as libfabric knows it.
#pragma once

#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include <cstddef>
#include <cstdint>

namespace ewarp::ofi {

inline constexpr const char* kProviderName = "etherwarp";
inline constexpr std::uint32_t kProviderVersion = FI_VERSION(1, 0);
// The channel's messages. The top bit is for protocols of a provider's own; libfabric 2 has no name for it any more.
inline constexpr std::uint32_t kProtocol = std::uint32_t{1} << 31 | 0x4557;
inline constexpr std::uint32_t kProtocolVersion = 2;

// The top bit of the channel's tags tells the two matching spaces apart.
inline constexpr std::uint64_t kMessageSpace = std::uint64_t{1} << 63;
inline constexpr std::uint64_t kTagMask = ~kMessageSpace;

inline constexpr std::size_t kInjectSize = 4096;       // octets
inline constexpr std::size_t kLeastMultiReceive = 64;  // octets; FI_OPT_MIN_MULTI_RECV where nobody says otherwise
inline constexpr std::size_t kQueueSize = 16384;       // requests under way that are fine; more are taken, too
inline constexpr std::size_t kDataSize = 8;            // octets of remote CQ data

inline constexpr std::uint64_t kCompletionLevels =
    FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
inline constexpr std::uint64_t kSendFlags = FI_COMPLETION | FI_INJECT | kCompletionLevels;
inline constexpr std::uint64_t kReceiveFlags = FI_COMPLETION | FI_MULTI_RECV;

extern fi_provider provider;

}  // namespace ewarp::ofi
