// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Scatter/gather lists as memory.
#pragma once

#include <cstdint>
#include <span>

#include "provider/verbs/memory/memory.h"
#include "provider/verbs/work_queue.h"
#include "rdmap/request.h"

namespace ewarp::verbs {

// The pieces of [offset, offset + n) of a list, with the rights in `need` (0: local read). success, or
// local_protection.
rdmap::Status resolve_sges(const Pd& pd, std::span<const Sge> sges, std::uint64_t offset, std::uint64_t n,
                           unsigned need, rdmap::ExtentList& out);

// Copies into [offset, offset + from.size()) of a list. False: its memory is bad.
bool copy_to_sges(const Pd& pd, std::span<const Sge> sges, std::uint64_t offset, Octets from);

}  // namespace ewarp::verbs
