/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the ACP programs of the tests share. */
#ifndef EWARP_ACP_CHECK_H
#define EWARP_ACP_CHECK_H

#include <acp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Ends the process, and with it the job's success. */
#define CHECK(condition)                                                                                         \
  do {                                                                                                           \
    if (!(condition)) {                                                                                          \
      fprintf(stderr, "%s:%d: rank %d: not so: %s (errno %d, %s)\n", __FILE__, __LINE__, acp_rank(), #condition, \
              errno, strerror(errno));                                                                           \
      _Exit(1);                                                                                                  \
    }                                                                                                            \
  } while (0)

/* The call gives this result and this errno. */
#define FAILS(call, result, error) \
  do {                             \
    errno = 0;                     \
    CHECK((call) == (result));     \
    CHECK(errno == (error));       \
  } while (0)

static inline double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Octets that tell where they come from. */
static inline void fill(unsigned char* at, size_t n, unsigned seed) {
  for (size_t i = 0; i < n; ++i) at[i] = (unsigned char)(i * 7 + seed * 31 + (i >> 8));
}
static inline int filled(const unsigned char* at, size_t n, unsigned seed) {
  for (size_t i = 0; i < n; ++i)
    if (at[i] != (unsigned char)(i * 7 + seed * 31 + (i >> 8))) return 0;
  return 1;
}

#endif
