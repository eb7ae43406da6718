// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Included in front of each source that scripts/mutants has changed: which of its mutants is alive.
#pragma once

#include <cstdlib>

// EWARP_MUTANT names one by its number; none lives without it.
inline bool mutant(int number) {
  static const int alive = [] {
    const char* const name = std::getenv("EWARP_MUTANT");
    return name != nullptr ? std::atoi(name) : 0;
  }();
  return number == alive;
}
