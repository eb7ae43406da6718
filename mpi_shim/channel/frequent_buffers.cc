#include "mpi_shim/channel/frequent_buffers.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ewarp::channel {

FrequentBuffers::FrequentBuffers(const MemoryCosts& costs, double fraction, std::size_t buckets)
    : costs_(costs), fraction_(fraction), buckets_(std::bit_ceil(std::max<std::size_t>(buckets, 2)), kNone) {}

// n uses save n copies and cost n look-ups and one registration (the thesis' inequality 5.3).
std::uint32_t FrequentBuffers::threshold(std::size_t octets) const {
  const double saved = costs_.copy_ns_per_octet * static_cast<double>(octets) - costs_.lookup_ns;
  if (saved <= 0) return 0;
  return static_cast<std::uint32_t>(std::clamp(std::ceil(fraction_ * costs_.registration_ns / saved), 1.0, 1e9));
}

bool FrequentBuffers::may_grow(std::uint32_t bucket) const {
  const bool chains = chained_ > 0 || buckets_[bucket] != kNone;
  return !chains || hot_ * 5 >= entries_.size();
}

bool FrequentBuffers::used(const void* buffer, std::size_t octets) {
  const std::uint32_t enough = threshold(octets);
  if (enough == 0) return false;
  // Multiplicative hashing by the golden ratio: buffers differ in their middle bits.
  const std::uint64_t product = reinterpret_cast<std::uintptr_t>(buffer) * 0x9e3779b97f4a7c15u;
  const auto bucket = static_cast<std::uint32_t>(product >> (64 - std::countr_zero(buckets_.size())));
  std::uint32_t at = buckets_[bucket];
  while (at != kNone && (entries_[at].buffer != buffer || entries_[at].octets != octets)) at = entries_[at].next;
  if (at == kNone) {
    if (!may_grow(bucket)) return false;
    chained_ += buckets_[bucket] != kNone;
    entries_.push_back({.buffer = buffer, .octets = octets, .uses = 0, .next = buckets_[bucket]});
    at = buckets_[bucket] = static_cast<std::uint32_t>(entries_.size() - 1);
  }
  Entry& e = entries_[at];
  if (e.uses >= enough) return true;
  hot_ += ++e.uses == enough;
  return e.uses >= enough;
}

}  // namespace ewarp::channel
