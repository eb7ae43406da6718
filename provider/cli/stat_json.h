// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The counters of processes as `etherwarp stat --json` prints them.
#pragma once

#include <span>
#include <string>

#include "provider/base/stats.h"

namespace ewarp::cli {

// One array with an object for each process, and a line end.
std::string stat_json(std::span<const stats::Snapshot> processes);

}  // namespace ewarp::cli
