// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Private data of a start-up without a connection manager: which QP wants which (docs/protocol/start-up.md section 8).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "llp/octets.h"

namespace ewarp::verbs {

struct PairNames {
  static constexpr std::size_t kSize = 24;
  static constexpr std::uint32_t kMagic = 0x49574942;    // "IWIB"
  static constexpr std::uint32_t kVersion = 0x01000000;  // version 1, 3 zero octets

  std::uint32_t destination = 0, source = 0;  // QP numbers, as the sender of the frame sees them
  std::uint32_t psn = 0;                      // for who reads a trace

  // Of a start-up of this kind: its version, 0: it is none. The first 5 octets mean the same in every version.
  static std::uint8_t version_of(Octets in) {
    return in.size() >= 5 && get_be<std::uint32_t>(in, 0) == kMagic ? get_be<std::uint8_t>(in, 4) : std::uint8_t{0};
  }
  static std::optional<PairNames> parse(Octets in) {
    if (in.size() != kSize || get_be<std::uint32_t>(in, 0) != kMagic || get_be<std::uint32_t>(in, 4) != kVersion)
      return std::nullopt;
    return PairNames{get_be<std::uint32_t>(in, 8), get_be<std::uint32_t>(in, 12), get_be<std::uint32_t>(in, 16)};
  }
  std::array<std::byte, kSize> emit() const {
    std::array<std::byte, kSize> out{};
    const std::uint32_t words[] = {kMagic, kVersion, destination, source, psn, 0};
    for (std::size_t i = 0; i < std::size(words); ++i) put_be<std::uint32_t>(out, 4 * i, words[i]);
    return out;
  }
};

}  // namespace ewarp::verbs
