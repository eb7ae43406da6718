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
  explicit Ahead(rdmap::Endpoint& endpoint) : endpoint_(endpoint) {
    const std::size_t told = endpoint.ahead();
    if (told > 0) between_ = endpoint.between();
    for (llp::Extent e; targets_.size() < told && endpoint.find_ahead(targets_.size() + 1, e);) targets_.push_back(e);
  }
  // Octets that the heads and the targets take.
  std::size_t room() const {
    std::size_t n = 0;
    for (const llp::Extent& e : targets_) n += between_ + e.length;
    return n;
  }
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
    for (const llp::Extent& e : targets_) {
      stage(between_);
      const std::size_t n = std::min(octets.size(), e.length);
      if (n > 0) std::memcpy(e.address, octets.data(), n);
      octets = octets.subspan(n);
    }
    stage(octets.size());
    staging.resize(std::max(staging.size(), targets_.size() * between_ + kBehind));
    const auto standing = endpoint_.receive_ahead(staging, between_, targets_, all);
    const auto begin = staging.begin() + static_cast<std::ptrdiff_t>(standing.begin);
    return {begin, begin + static_cast<std::ptrdiff_t>(standing.octets)};
  }

 private:
  rdmap::Endpoint& endpoint_;
  std::vector<llp::Extent> targets_;
  std::size_t between_ = 0;
};

}  // namespace ewarp
