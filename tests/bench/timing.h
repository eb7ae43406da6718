// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What benchmarks in C share, whatever they measure.
#pragma once

#include <time.h>

static inline double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

// For qsort() of doubles.
static inline int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}
