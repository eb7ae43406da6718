// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The clock of the transport.
#pragma once

#include <time.h>

#include <cstdint>

namespace ewarp::channel {

// Nanoseconds from any origin, never backwards.
inline std::uint64_t monotonic_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

}  // namespace ewarp::channel
