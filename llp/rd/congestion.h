// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The congestion window of one association, in octets, for both its lanes (RFC 5681, counting octets: RFC 3465).
#pragma once

#include <cstdint>

#include "llp/rd/types.h"

namespace ewarp::llp::rd {

// segment, everywhere: octets of a full datagram.
class Congestion {
 public:
  void start(const Config& config, std::uint32_t segment);
  std::uint32_t window() const { return window_; }
  // in_flight: before this acknowledgement. A window that is not used does not grow.
  void acknowledged(std::uint32_t octets, std::uint32_t in_flight, std::uint32_t segment);
  // A loss or a CE mark; the caller sees to it that there is one a round trip.
  void loss(std::uint32_t in_flight, std::uint32_t segment);
  void timeout(std::uint32_t in_flight, std::uint32_t segment);
  // Nothing was sent for longer than the timeout.
  void idle(const Config& config, std::uint32_t segment);

 private:
  std::uint32_t window_ = 0, threshold_ = ~std::uint32_t{0}, credit_ = 0;
};

}  // namespace ewarp::llp::rd
