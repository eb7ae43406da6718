// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The list.
#include "suite.h"

// clang-format off
#define SUBJECTS(X) \
  X(blocking) \
  X(nonblocking) \
  X(sendrecv) \
  X(persistent) \
  X(probe) \
  X(cancel) \
  X(wildcard) \
  X(order) \
  X(oneself) \
  X(errors) \
  X(datatypes) \
  X(collectives) \
  X(icollectives) \
  X(neighbourhood) \
  X(communicators) \
  X(onesided) \
  X(accumulate) \
  X(bounds) \
  X(layouts) \
  X(passive) \
  X(shared) \
  X(buffers) \
  X(children) \
  X(threads)
// clang-format on

#define DECLARE(name) void name(void);
SUBJECTS(DECLARE)
void large(void);

#define ENTRY(name) {#name, name, false},
const struct subject kSubjects[] = {SUBJECTS(ENTRY){"large", large, true}};
const int kSubjectsCount = sizeof kSubjects / sizeof kSubjects[0];
