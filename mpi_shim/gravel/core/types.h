// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The words of Gravel: processes, tags, buffers at peers, and what may go wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ewarp::gravel {

using Octets = std::span<const std::byte>;
using MutableOctets = std::span<std::byte>;

using Proc = int;  // 0, 1, ..., as in the communicator that the job was started with
inline constexpr Proc kAnySource = -1;
inline constexpr int kAnyTag = -1;

// A request of this process until it was found done; 0 is none. Peers name it in their FINs.
using RequestId = std::uint32_t;

// The numbers of gravel.h; `full` stays inside.
enum class Error : int {
  none = 0,
  argument,
  rank,
  tag,
  request,
  state,
  unregistered,
  range,
  peer,
  busy,
  memory,
  device,
  job,
  full,  // a ledger or the path: make progress, then ask again
};

// Memory at a peer.
struct Remote {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  bool operator==(const Remote&) const = default;
};

// A part of a registered buffer of ours. slot: of the buffer in Buffers.
struct Local {
  std::byte* data = nullptr;
  std::size_t size = 0;
  std::uint32_t key = 0;
  std::uint32_t slot = 0;

  Remote remote() const { return {reinterpret_cast<std::uint64_t>(data), key}; }
};

}  // namespace ewarp::gravel
