// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/frequent_buffers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

namespace ewarp::channel {

FrequentBuffers::FrequentBuffers(const MemoryCosts& costs, double fraction, std::size_t sets)
    : costs_(costs), fraction_(fraction), entries_(std::bit_ceil(std::max<std::size_t>(sets, 2)) * kWays) {}

// n uses save n copies and cost n look-ups and one registration (the thesis' inequality 5.3).
std::uint32_t FrequentBuffers::threshold(std::size_t octets) const {
  const double saved = costs_.copy_ns_per_octet * static_cast<double>(octets) - costs_.lookup_ns;
  if (saved <= 0) return 0;
  return static_cast<std::uint32_t>(std::clamp(std::ceil(fraction_ * costs_.registration_ns / saved), 1.0, 1e9));
}

// What is not known takes a free place of its set; where there is none, one use of each is forgotten instead (Misra and
// Gries): buffers of one use make room for each other, and one with more than a ninth of its set's uses gets in
// whatever was there before.
bool FrequentBuffers::used(const void* buffer, std::size_t octets) {
  const std::uint32_t enough = threshold(octets);
  if (enough == 0) return false;
  // Multiplicative hashing by the golden ratio: buffers differ in their middle bits.
  const std::uint64_t product = reinterpret_cast<std::uintptr_t>(buffer) * 0x9e3779b97f4a7c15u;
  const std::size_t set = product >> (64 - std::countr_zero(entries_.size() / kWays));
  const std::span<Entry, kWays> ways(entries_.data() + set * kWays, kWays);
  Entry* place = nullptr;
  for (Entry& e : ways) {
    if (e.uses > 0 && e.buffer == buffer && e.octets == octets) {
      e.uses = std::min(e.uses + 1, enough);
      return e.uses == enough;
    }
    if (e.uses == 0) place = &e;
  }
  if (place == nullptr) {
    for (Entry& e : ways) --e.uses;
    return false;
  }
  *place = {.buffer = buffer, .octets = octets, .uses = 1};
  return enough == 1;
}

}  // namespace ewarp::channel
