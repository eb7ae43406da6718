// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Atomic operations: what is asked of a peer as a call of the channel's, and carried out there by whoever handles it.
#pragma once

#include <rdma/fi_atomic.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "mpi_shim/channel/core/types.h"

namespace ewarp::ofi {

class Regions;

enum class AtomicKind : std::uint8_t { write = 0, fetch = 1, compare = 2 };

// Operands of one call, octets; as many again may be compared with.
inline constexpr std::size_t kAtomicOctets = 2048;

// Octets of one element; nothing if we have no such operation on such data.
std::optional<std::size_t> atomic_size(AtomicKind kind, fi_datatype datatype, fi_op op);

// What is asked. The operands follow, and what they are compared with: as they lie in memory, so both ends must have
// the same order of octets.
struct AtomicQuestion {
  static constexpr std::size_t kSize = 24;
  AtomicKind kind = AtomicKind::write;
  fi_op op = FI_ATOMIC_READ;
  fi_datatype datatype = FI_UINT64;
  std::uint32_t count = 0;
  std::uint64_t address = 0;
  std::uint64_t key = 0;

  void emit(channel::MutableOctets out) const;
  // Nothing if it asks for what we do not have, or has other octets behind it than it says.
  static std::optional<AtomicQuestion> parse(channel::Octets in);
};

// An answer begins with a code of libfabric's, 0 if it was done; what was there before follows, if that was asked for.
inline constexpr std::size_t kAnswerHead = 4;

// The answer to a peer. Requires: room for kAnswerHead + kAtomicOctets. Gives its length.
std::size_t answer_atomic(Regions& regions, channel::Octets question, channel::MutableOctets answer);

}  // namespace ewarp::ofi
