// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Global addresses: 20 bits rank + 1, 10 bits tag of a region, 34 bits offset in it. Addition of octets moves within a
// region. Tag 0 is the starter memory.
#pragma once

#include <cstdint>

namespace ewarp::acp {

struct GlobalAddress {
  static constexpr unsigned kOffsetBits = 34, kTagBits = 10;
  static constexpr std::uint64_t kMostOctets = std::uint64_t{1} << kOffsetBits;
  static constexpr std::uint32_t kTags = 1u << kTagBits;
  static constexpr std::uint32_t kMostProcs = (1u << (64 - kOffsetBits - kTagBits)) - 1;

  std::uint32_t rank;
  std::uint32_t tag;
  std::uint64_t offset;

  // Requires: ga is not ACP_GA_NULL, whose rank would be -1.
  static GlobalAddress parse(std::uint64_t ga) {
    return {static_cast<std::uint32_t>(ga >> (kOffsetBits + kTagBits)) - 1,
            static_cast<std::uint32_t>(ga >> kOffsetBits) & (kTags - 1), ga & (kMostOctets - 1)};
  }
  std::uint64_t emit() const {
    return std::uint64_t{rank + 1} << (kOffsetBits + kTagBits) | std::uint64_t{tag} << kOffsetBits | offset;
  }
};

// What peers read of a region: an entry of Area::regions.
struct RegionEntry {
  std::uint64_t address;
  std::uint64_t octets;  // 0: no region has this tag
  std::uint32_t rkey;
  std::uint32_t reserved;

  bool operator==(const RegionEntry&) const = default;
};
static_assert(sizeof(RegionEntry) == 24);

}  // namespace ewarp::acp
