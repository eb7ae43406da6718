#include "llp/rd_timer.h"

#include <algorithm>

namespace ewarp::llp::rd {

void RoundTrip::sample(Time r) {
  r = std::max<Time>(r, 1);  // 0 means "no sample yet"
  if (smoothed_ == 0) {
    smoothed_ = r;
    variation_ = r / 2;
    return;
  }
  const Time distance = smoothed_ > r ? smoothed_ - r : r - smoothed_;
  variation_ = (3 * variation_ + distance + 2) / 4;
  smoothed_ = (7 * smoothed_ + r + 4) / 8;
}

Time RoundTrip::estimate(const Config& config) const {
  if (smoothed_ == 0) return config.rto_init;
  const Time t = smoothed_ + std::max(config.granularity, 4 * variation_);
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
