// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For the programs that the tests run under the preload library.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(claim)                                                                                            \
  do {                                                                                                          \
    if (!(claim)) {                                                                                             \
      fprintf(stderr, "probe: line %d: not so: %s (errno %d, %s)\n", __LINE__, #claim, errno, strerror(errno)); \
      exit(1);                                                                                                  \
    }                                                                                                           \
  } while (0)
