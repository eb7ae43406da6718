// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The kernel's clocks, in nanoseconds.
#pragma once

#include <time.h>

#include <cstdint>

namespace ewarp {

inline std::uint64_t ns_of(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

// From any origin, never backwards.
inline std::uint64_t monotonic_ns() {
  return ns_of(CLOCK_MONOTONIC);
}

// What the calling thread has used of the CPUs. A system call, unlike the other.
inline std::uint64_t thread_cpu_ns() {
  return ns_of(CLOCK_THREAD_CPUTIME_ID);
}

}  // namespace ewarp
