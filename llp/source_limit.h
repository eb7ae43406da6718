// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How often strangers are answered: a bounded number of times in a second for each source, in bounded memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace ewarp::llp {

// Coarse: counts within windows of a second, in a fixed table. Sources that fall on the same entry share its limit. A
// flood from one source uses up its own entry alone. Threading: one thread at a time.
class SourceLimit {
 public:
  static constexpr std::size_t kEntries = 256;
  static constexpr unsigned kNoTotal = ~0U;

  explicit SourceLimit(unsigned per_source, unsigned in_all = kNoTotal)
      : per_source_(static_cast<std::uint8_t>(std::min(per_source, 255U))), in_all_(in_all) {}

  // hash: of the source. now: nanoseconds of any clock that does not go back.
  bool allow(std::uint64_t hash, std::uint64_t now) {
    if (now - began_ >= kWindow) {
      began_ = now;
      total_ = 0;
      counts_.fill(0);
    }
    std::uint8_t& count = counts_[hash % kEntries];
    if (total_ >= in_all_ || count >= per_source_) return false;
    ++total_;
    ++count;
    return true;
  }

 private:
  static constexpr std::uint64_t kWindow = 1'000'000'000;
  const std::uint8_t per_source_;
  const unsigned in_all_;
  std::uint64_t began_ = 0;
  unsigned total_ = 0;
  std::array<std::uint8_t, kEntries> counts_{};
};

}  // namespace ewarp::llp
