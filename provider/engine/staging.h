// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Where octets of a stream are looked at before they are placed.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace ewarp::verbs {

// It begins at a page, as what an idle socket fills does: a little behind, the kernel's copy of what arrives is slow
// (rdmap/lead.h).
inline constexpr std::align_val_t kStagingAlignment{4096};

struct StagingDelete {
  void operator()(std::byte* octets) const { ::operator delete[](octets, kStagingAlignment); }
};

using Staging = std::unique_ptr<std::byte[], StagingDelete>;

// Throws std::bad_alloc.
inline Staging make_staging(std::size_t octets) {
  return Staging(new (kStagingAlignment) std::byte[octets]);
}

}  // namespace ewarp::verbs
