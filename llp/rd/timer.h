// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Round trips and what follows from them: the retransmission timeout of RFC 6298, and the RNR timer's table.
#pragma once

#include <cstdint>

#include "llp/rd/types.h"

namespace ewarp::llp::rd {

class RoundTrip {
 public:
  // r: of a segment that was sent once (Karn), less the delay that the acknowledgement admits to.
  void sample(Time r);
  // The present timeout, doubled for each back_off() since the last progress().
  Time timeout(const Config& config) const;
  void back_off(const Config& config);
  // An acknowledgement moved: the estimate counts again. RFC 6298 alone would wait for a sample, which Karn's rule
  // withholds for as long as every segment has to be sent twice.
  void progress() { doublings_ = 0; }
  Time smoothed() const { return smoothed_ * kUnit; }  // 0: no sample yet
  Time variation() const { return variation_ * kUnit; }

 private:
  // Every idle association keeps these, so they are small: up to 17 s.
  static constexpr Time kUnit = 4;
  Time estimate(const Config& config) const;
  std::uint32_t smoothed_ = 0, variation_ = 0;
  std::uint8_t doublings_ = 0;
};

// code: 5 bits, as verbs' min_rnr_timer.
Time rnr_time(std::uint8_t code);

}  // namespace ewarp::llp::rd
