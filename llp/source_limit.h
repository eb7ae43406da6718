// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How often strangers are answered: a bounded number of times in a second for each source, in bounded memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "llp/siphash.h"
#include "llp/source.h"

namespace ewarp::llp {

// Coarse: counts within windows of a second, in a fixed table. Sources that fall on the same entry share its limit;
// which ones do, nobody knows who does not know the key. A flood from one source uses up its own entry alone.
// Threading: one thread at a time.
class SourceLimit {
 public:
  static constexpr std::size_t kEntries = 256;
  static constexpr unsigned kNoTotal = ~0U;

  explicit SourceLimit(const SipKey& key, unsigned per_source, unsigned in_all = kNoTotal)
      : key_(key), per_source_(static_cast<std::uint8_t>(std::min(per_source, 255U))), in_all_(in_all) {}

  // address: IPv6 or IPv4-mapped. now: nanoseconds of any clock that does not go back.
  bool allow(const std::array<std::byte, 16>& address, std::uint64_t now) {
    if (now - began_ >= kWindow) {
      began_ = now;
      total_ = 0;
      counts_.fill(0);
    }
    std::uint8_t& count = counts_[siphash(key_, source_of(address)) % kEntries];
    if (total_ >= in_all_ || count >= per_source_) return false;
    ++total_;
    ++count;
    return true;
  }

 private:
  static constexpr std::uint64_t kWindow = 1'000'000'000;
  const SipKey key_;
  const std::uint8_t per_source_;
  const unsigned in_all_;
  std::uint64_t began_ = 0;
  unsigned total_ = 0;
  std::array<std::uint8_t, kEntries> counts_{};
};

}  // namespace ewarp::llp
