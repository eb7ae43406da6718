// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How long a wait lasts that a time-out must end.
#pragma once

#include <chrono>
#include <string>

#include "tests/vectors/vectors.h"

namespace ewarp::test {

// A busy machine is late by chance, a wrong timer each time: so many waits are looked at, and one that is not much
// longer than its limit is enough.
inline constexpr int kWaits = 8, kMuchLonger = 5;

using Clock = std::chrono::steady_clock;

inline Clock::duration since(Clock::time_point begin) {
  return Clock::now() - begin;
}

// wait() lets one wait of this limit pass and gives the time since before it began. No wait is shorter than the limit,
// and not all are more than kMuchLonger times as long.
template <class Wait>
void expect_to_last(std::chrono::milliseconds limit, const std::string& what, Wait&& wait) {
  for (int waits = 1;; ++waits) {
    const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(wait());
    if (passed < limit)
      fail_msg("%s: over after %ld ms, not %ld", what.c_str(), long{passed.count()}, long{limit.count()});
    if (passed <= kMuchLonger * limit) return;
    if (waits == kWaits)
      fail_msg("%s: %d times much later than %ld ms, at last after %ld", what.c_str(), waits, long{limit.count()},
               long{passed.count()});
  }
}

}  // namespace ewarp::test
