// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A piece of registered memory in a work request.
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstddef>
#include <cstdint>

namespace ewarp::channel {

inline ibv_sge element(const void* data, std::size_t octets, std::uint32_t lkey) {
  assert(octets <= UINT32_MAX);
  return {.addr = reinterpret_cast<std::uint64_t>(data), .length = static_cast<std::uint32_t>(octets), .lkey = lkey};
}

// The sink of a Read: iWARP wants the right to write remotely.
inline constexpr int kSinkAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

}  // namespace ewarp::channel
