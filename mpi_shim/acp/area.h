// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The memory of a process that all others may write to from the beginning: the ring of connection requests, the table
// of its regions, and the program's starter memory behind them. Its address is in the process's Contact.
#pragma once

#include <cstddef>

#include "mpi_shim/acp/core/crb.h"
#include "mpi_shim/acp/core/global_address.h"

namespace ewarp::acp {

struct Area {
  ConnectRequest requests[ConnectRequests::kEntries];
  RegionEntry regions[GlobalAddress::kTags];  // regions[0] is not used: tag 0 is the starter memory
  // The starter memory follows.

  std::byte* starter() { return reinterpret_cast<std::byte*>(this + 1); }
};

}  // namespace ewarp::acp
