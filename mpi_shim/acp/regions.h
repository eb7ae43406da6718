// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Regions of global memory: this process's, which it registers, and those of others, as their tables tell.
#pragma once

#include "mpi_shim/acp/path.h"

namespace ewarp::acp {

// This process's. Tags are used in turns, so that one comes back late: others may have an old entry in their caches.
class OwnRegions {
 public:
  OwnRegions(Path& path, Area& area, std::uint32_t starter_octets, const Registration& area_region);
  ~OwnRegions();
  OwnRegions(const OwnRegions&) = delete;
  OwnRegions& operator=(const OwnRegions&) = delete;

  // A key; 0 with errno.
  std::uint64_t add(void* memory, std::size_t octets);
  bool remove(std::uint64_t key);
  // ACP_GA_NULL with errno: not in this region.
  std::uint64_t global(std::uint64_t key, const void* address) const;

  struct Local {
    std::byte* at = nullptr;  // null: not ours, or beyond the region
    std::uint32_t lkey = 0, rkey = 0;
  };
  Local local(const GlobalAddress& ga, std::uint64_t octets) const;

 private:
  std::uint32_t tag_of(std::uint64_t key) const;

  Path& path_;
  Area& area_;
  std::uint32_t starter_octets_;
  Registration area_region_;
  std::uint32_t next_tag_ = 1;
  void* handles_[GlobalAddress::kTags] = {};
  std::uint32_t generations_[GlobalAddress::kTags] = {};
};

// Entries of other processes' tables that were read, by rank and tag.
//
// A process gives its tags in turns, so a new region says that those with the next tags may have been replaced, too.
// An adapter of RD ends an association that has named wrong keys several times, so old entries are found before use.
class RegionCache {
 public:
  // Null: has to be read.
  const RegionEntry* find(const GlobalAddress& ga) const;
  // What was read.
  void put(const GlobalAddress& ga, const RegionEntry& entry);
  // It has to be read again.
  void doubt(const GlobalAddress& ga);

 private:
  // Half of all tags, so that of two regions one at most casts doubt on the other.
  static constexpr std::uint32_t kDoubted = (GlobalAddress::kTags - 1) / 2;
  static constexpr std::uint32_t kSlots = 1024;
  struct Slot {
    std::uint64_t key;  // 0: empty
    RegionEntry entry;
    bool doubted;
  };
  void doubt_next(GlobalAddress ga);
  static std::uint64_t key_of(const GlobalAddress& ga) { return GlobalAddress{ga.rank, ga.tag, 0}.emit(); }
  static std::uint32_t slot_of(const GlobalAddress& ga) { return (ga.rank * 37 + ga.tag) % kSlots; }
  Slot slots_[kSlots] = {};
};

}  // namespace ewarp::acp
