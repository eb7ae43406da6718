// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An adapter that pins what is registered, as the kernel does for an RNIC: each region is the fixed buffer of a ring of
// io_uring, and what it sends is read through that. It takes the place of libibverbs's functions in this program.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "mpi_shim/channel/core/types.h"

namespace ewarp::channel::test {

struct PinningAdapter {
  // Registered and not given back.
  static int regions();
  // The octets that a Send of this memory would carry.
  static std::vector<std::byte> sends(const ibv_mr& region, Octets memory);

  // Called in the middle of registering and of giving back.
  static inline std::function<void()> meanwhile;
  static inline int most_regions = 0;      // 0: no limit
  static inline bool counts_only = false;  // nothing is pinned
};

}  // namespace ewarp::channel::test
