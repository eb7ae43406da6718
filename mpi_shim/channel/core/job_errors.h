// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What lines on stderr begin with that many processes of a job may write at once, for the same reason. `etherwarp
// mpirun` lets one of them through.
#pragma once

#include <string_view>

namespace ewarp::channel::job_errors {

inline constexpr std::string_view kBoth = "etherwarp: error: ";
// A process that cannot reach a peer.
inline constexpr std::string_view kUnreachable = "etherwarp: error: no connection from ";
// A host that cannot run a process.
inline constexpr std::string_view kHost = "etherwarp: error: host ";

}  // namespace ewarp::channel::job_errors
