// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counters of the MPI channel that a process publishes beside its own: files PID.channel.PORT (docs/design/channel.md).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ewarp::cli {

struct ChannelCounters {
  std::string address;
  std::vector<std::pair<std::string, std::uint64_t>> values;
};

// path: of the process's page. Files that cannot be understood are passed over.
std::vector<ChannelCounters> channel_counters(const std::string& path);
// Removes files in the directory whose process has no page any more.
void remove_stale_channel_counters(const std::string& directory);

}  // namespace ewarp::cli
