// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What one stream is about to write: a list of iovecs over headers (kept here) and over memory of others.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "llp/octets.h"

namespace ewarp::llp {

// A piece of memory that belongs to somebody else, and the ticket under which it may be touched. `region` and `ticket`
// mean something to the MemoryGate only; region == nullptr: memory of our own, always good.
struct Extent {
  std::byte* address = nullptr;
  std::size_t length = 0;
  void* region = nullptr;
  std::uint64_t ticket = 0;
};

// Who says whether an Extent may be touched now. enter() succeeds only while the region is registered, and the region
// is not released before leave(): the two bracket one copy or one system call that does not block.
// No allocation, free or mapping between the two (an application's memory hooks may deregister from inside free()).
class MemoryGate {
 public:
  virtual bool enter(void* region, std::uint64_t ticket) = 0;
  virtual void leave(void* region) = 0;

 protected:
  ~MemoryGate() = default;
};

// Threading: belongs to whoever holds the engine. Capacity is fixed at construction: nothing allocates afterwards.
class Gather {
 public:
  static constexpr std::size_t kMaxVectors = 512;  // below UIO_MAXIOV (1024)
  // Four of the largest FPDUs: so much of what one system call is given is copied, or headers, at most.
  static constexpr std::size_t kArena = 260 * 1024;
  static constexpr std::size_t kMaxRegions = 64;

  Gather();

  bool empty() const { return octets_ == 0; }
  std::size_t octets() const { return octets_; }
  // Room for one more segment: `vectors` pieces and `arena` octets of header or copied payload.
  bool has_room(std::size_t vectors, std::size_t arena, std::size_t regions = 1) const;
  std::size_t arena_room() const { return kArena - arena_used_; }

  // n octets that the caller fills before the next call on this object; they follow what is already there.
  // Requires: has_room(1, n).
  MutableOctets append(std::size_t n);
  // Memory of somebody else, gathered in place when written. Requires: has_room(1, 0).
  void append(const Extent& extent);
  // Takes back everything that was appended since mark(). Requires: nothing was consumed meanwhile.
  struct Mark {
    std::size_t count, last_length, arena_used, region_count, octets;
  };
  Mark mark() const;
  void back_to(const Mark& mark);

  std::span<const iovec> vectors() const { return std::span(vectors_.data() + first_, count_ - first_); }
  struct RegionUse {
    void* region;
    std::uint64_t ticket;
  };
  // Regions to enter before the vectors are read. Some may be consumed already: see uses().
  std::span<const RegionUse> regions() const { return std::span(regions_.data(), region_count_); }
  // Whether vectors() still reads from regions()[index].
  bool uses(std::size_t index) const;

  // The first n octets have been written. Requires: n <= octets(). When nothing is left all room is given back.
  void consume(std::size_t n);
  void clear();

 private:
  static constexpr std::uint8_t kOwn = 0xff;
  std::uint8_t owner_of(const Extent& extent);
  std::vector<iovec> vectors_;
  std::unique_ptr<std::byte[]> arena_;
  std::array<std::uint8_t, kMaxVectors> owner_{};  // index in regions_ of each vector, or kOwn
  std::array<RegionUse, kMaxRegions> regions_{};
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::size_t arena_used_ = 0;
  std::size_t region_count_ = 0;
  std::size_t octets_ = 0;
};

}  // namespace ewarp::llp
