// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/frequent_buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <new>

namespace ewarp::channel {

void FrequentBuffers::Unmap::operator()(Set* sets) const {
  munmap(sets, octets);
}

std::unique_ptr<FrequentBuffers::Set[], FrequentBuffers::Unmap> FrequentBuffers::zeroes(std::size_t sets) {
  const std::size_t octets = sets * sizeof(Set);
  void* const memory = mmap(nullptr, octets, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<Set*>(memory), Unmap{octets}};
}

FrequentBuffers::FrequentBuffers(const MemoryCosts& costs, double fraction, std::size_t sets)
    : costs_(costs),
      fraction_(fraction),
      set_bits_(std::countr_zero(std::bit_ceil(std::clamp<std::size_t>(sets, 2, kSets)))),
      sets_(zeroes(std::size_t{1} << set_bits_)) {}

// n uses save n copies and cost n look-ups and one registration (the thesis' inequality 5.3).
std::uint32_t FrequentBuffers::threshold(std::size_t octets) const {
  const double saved = costs_.copy_ns_per_octet * static_cast<double>(octets) - costs_.lookup_ns;
  if (saved <= 0) return 0;
  const double uses = std::max(std::ceil(fraction_ * costs_.registration_ns / saved), 1.0);
  return uses > static_cast<double>(kUses) ? 0 : static_cast<std::uint32_t>(uses);
}

// The finalizer of MurmurHash3: buffers differ in their middle bits, and both ends of the hash are used.
FrequentBuffers::Place FrequentBuffers::place_of(const void* buffer, std::size_t octets) {
  std::uint64_t hash = reinterpret_cast<std::uintptr_t>(buffer) ^ std::uint64_t{octets} * 0x9e3779b97f4a7c15u;
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdu;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53u;
  hash ^= hash >> 33;
  return {.set = sets_[hash >> (64 - set_bits_)], .tag = hash << kUseBits};
}

// What is not known takes a free place of its set; where there is none, one use of each is forgotten instead (Misra and
// Gries): buffers of one use make room for each other, and one with more than a ninth of its set's uses gets in
// whatever was there before.
bool FrequentBuffers::used(const void* buffer, std::size_t octets) {
  const std::uint32_t enough = threshold(octets);
  if (enough == 0) return false;
  const auto [set, tag] = place_of(buffer, octets);
  Entry* free = nullptr;
  for (Entry& e : set.ways) {
    const Entry uses = e & kUses;
    if (uses > 0 && e - uses == tag) {
      e = tag | std::min<Entry>(uses + 1, enough);
      return uses + 1 >= enough;
    }
    if (uses == 0) free = &e;
  }
  if (free == nullptr) {
    for (Entry& e : set.ways) --e;
    return false;
  }
  *free = tag | 1;
  return enough == 1;
}

void FrequentBuffers::in_vain(const void* buffer, std::size_t octets) {
  const auto [set, tag] = place_of(buffer, octets);
  for (Entry& e : set.ways)
    if ((e & ~kUses) == tag) e = 0;
}

}  // namespace ewarp::channel
