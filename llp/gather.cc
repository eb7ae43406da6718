// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/gather.h"

#include <cassert>

namespace ewarp::llp {

// The arena is memory only as far as it is used.
Gather::Gather() : vectors_(kMaxVectors), arena_(new std::byte[kArena]) {}

bool Gather::has_room(std::size_t vectors, std::size_t arena, std::size_t regions) const {
  return count_ + vectors <= kMaxVectors && arena_used_ + arena <= kArena && region_count_ + regions <= kMaxRegions;
}

MutableOctets Gather::append(std::size_t n) {
  assert(has_room(1, n, 0));
  std::byte* at = arena_.get() + arena_used_;
  arena_used_ += n;
  octets_ += n;
  // Neighbours in the arena share one vector: a stream of small messages then needs a single one.
  if (count_ > first_) {
    iovec& last = vectors_[count_ - 1];
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == at) {
      last.iov_len += n;
      return {at, n};
    }
  }
  owner_[count_] = kOwn;
  vectors_[count_++] = iovec{at, n};
  return {at, n};
}

void Gather::append(const Extent& extent) {
  assert(has_room(1, 0, 0));
  if (extent.length == 0) return;
  owner_[count_] = owner_of(extent);
  vectors_[count_++] = iovec{extent.address, extent.length};
  octets_ += extent.length;
}

// append() may lengthen the last vector.
Gather::Mark Gather::mark() const {
  return {count_, count_ > first_ ? vectors_[count_ - 1].iov_len : 0, arena_used_, region_count_, octets_};
}

void Gather::back_to(const Mark& mark) {
  assert(mark.count >= first_ && mark.count <= count_);
  count_ = mark.count;
  if (count_ > first_) vectors_[count_ - 1].iov_len = mark.last_length;
  arena_used_ = mark.arena_used;
  region_count_ = mark.region_count;
  octets_ = mark.octets;
}

std::uint8_t Gather::owner_of(const Extent& extent) {
  if (extent.region == nullptr) return kOwn;
  for (std::size_t i = 0; i < region_count_; ++i)
    if (regions_[i].region == extent.region && regions_[i].ticket == extent.ticket) return static_cast<std::uint8_t>(i);
  assert(region_count_ < kMaxRegions);
  regions_[region_count_] = RegionUse{extent.region, extent.ticket};
  return static_cast<std::uint8_t>(region_count_++);
}

bool Gather::uses(std::size_t index) const {
  for (std::size_t i = first_; i < count_; ++i)
    if (owner_[i] == index) return true;
  return false;
}

void Gather::consume(std::size_t n) {
  assert(n <= octets_);
  octets_ -= n;
  while (n > 0) {
    assert(first_ < count_);
    iovec& v = vectors_[first_];
    if (n < v.iov_len) {
      v.iov_base = static_cast<std::byte*>(v.iov_base) + n;
      v.iov_len -= n;
      break;
    }
    n -= v.iov_len;
    ++first_;
  }
  if (octets_ == 0) clear();
}

void Gather::clear() {
  first_ = count_ = arena_used_ = region_count_ = octets_ = 0;
}

}  // namespace ewarp::llp
