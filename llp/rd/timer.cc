// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/rd/timer.h"

#include <algorithm>

namespace ewarp::llp::rd {

void RoundTrip::sample(Time r) {
  // 0 means "no sample yet".
  const auto units = static_cast<std::uint32_t>(std::clamp<Time>(r / kUnit, 1, ~std::uint32_t{0}));
  if (smoothed_ == 0) {
    smoothed_ = units;
    variation_ = units / 2;
    return;
  }
  const std::uint64_t distance = smoothed_ > units ? smoothed_ - units : units - smoothed_;
  variation_ = static_cast<std::uint32_t>((std::uint64_t{3} * variation_ + distance + 2) / 4);
  smoothed_ = static_cast<std::uint32_t>((std::uint64_t{7} * smoothed_ + units + 4) / 8);
}

Time RoundTrip::estimate(const Config& config) const {
  if (smoothed_ == 0) return config.rto_init;
  const Time t = smoothed() + std::max(config.granularity, 4 * variation());
  return std::clamp(t, config.rto_min, config.rto_max);
}

Time RoundTrip::timeout(const Config& config) const {
  return std::min(config.rto_max, estimate(config) << doublings_);
}

void RoundTrip::back_off(const Config& config) {
  if (timeout(config) < config.rto_max) ++doublings_;
}

Time rnr_time(std::uint8_t code) {
  // Hundredths of a millisecond; InfiniBand's table.
  static constexpr std::uint32_t kTable[] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                             48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                             2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return kTable[code & 31] * (10 * kMicrosecond);
}

}  // namespace ewarp::llp::rd
