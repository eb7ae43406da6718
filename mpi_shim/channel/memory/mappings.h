// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The mappings of this process, as /proc/self/maps lists them.
#pragma once

#include <istream>
#include <vector>

#include "mpi_shim/channel/memory/ranges.h"

namespace ewarp::channel {

// The mappings that the range lies in, in their order, whole. None if a part of it is not mapped, or belongs to a file,
// or is shared with other processes: the pages of such memory may change while it stays mapped (ftruncate(),
// elsewhere).
std::vector<Range> private_mappings(std::istream& maps, const Range& range);
std::vector<Range> private_mappings(const Range& range);

}  // namespace ewarp::channel
