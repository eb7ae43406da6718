// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What one receive reaches behind the payload that goes direct, and how its octets are spread.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "rdmap/endpoint.h"

namespace ewarp {

class Ahead {
 public:
  // Looked for before any of the direct payload is stored, as it is before a receive.
  explicit Ahead(rdmap::Endpoint& endpoint) : endpoint_(endpoint), ahead_(endpoint.find_ahead(ddp::kMostAhead)) {}
  // Octets that the heads and the targets take.
  std::size_t room() const { return ahead_.count * (ahead_.between + ahead_.payload); }
  // These have come behind the direct payload, all of which was reported. Returns what receive() is to get.
  std::vector<std::byte> arrived(Octets octets) {
    constexpr std::size_t kBehind = 512;  // staging has room behind the last head
    const std::size_t all = octets.size();
    std::vector<std::byte> staging;
    const auto stage = [&](std::size_t most) {
      const Octets piece = octets.first(std::min(octets.size(), most));
      staging.insert(staging.end(), piece.begin(), piece.end());
      octets = octets.subspan(piece.size());
    };
    for (std::size_t i = 0; i < ahead_.count; ++i) {
      stage(ahead_.between);
      const std::size_t n = std::min(octets.size(), ahead_.payload);
      if (n > 0) std::memcpy(ahead_.target_of(i).address, octets.data(), n);
      octets = octets.subspan(n);
    }
    stage(octets.size());
    staging.resize(std::max(staging.size(), ahead_.count * ahead_.between + kBehind));
    const auto standing = endpoint_.receive_ahead(staging, ahead_, all);
    const auto begin = staging.begin() + static_cast<std::ptrdiff_t>(standing.begin);
    return {begin, begin + static_cast<std::ptrdiff_t>(standing.octets)};
  }

 private:
  rdmap::Endpoint& endpoint_;
  rdmap::Endpoint::Ahead ahead_;
};

}  // namespace ewarp
