// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Slots for regions and windows, and their keys. A peer that has seen keys shall not find others by them: the slot is
// drawn from many free ones, and the bits of the index that do not name it, and the key octet, are drawn for each key.
//
//   index, first chunk:   0 | random 11 | slot 12
//   index, chunk c > 0:   1 | c - 1: 3  | random 9 - c | slot 11 + c
#include <pthread.h>
#include <sys/random.h>

#include <array>
#include <bit>
#include <cassert>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <utility>

#include "llp/mutex.h"
#include "provider/verbs/memory/memory.h"

namespace ewarp::verbs {
namespace {

constexpr std::uint32_t kLaterChunk = 1u << 23;  // in an index
constexpr unsigned kChunkAt = 20;

// A system call for many. A number that was used is forgotten.
struct Dice {
  std::array<std::uint32_t, 128> numbers;
  std::size_t left;
};
thread_local Dice dice;

std::uint32_t draw() {
  if (dice.left == 0) {
    while (getrandom(dice.numbers.data(), sizeof dice.numbers, 0) != static_cast<ssize_t>(sizeof dice.numbers)) {
    }
    dice.left = dice.numbers.size();
  }
  return std::exchange(dice.numbers[--dice.left], 0);
}

}  // namespace

// A handler of its own: whatever else a fork finds or does not find, the child does not issue the keys that its parent
// issues next.
MemoryTable::MemoryTable() {
  pthread_atfork(nullptr, nullptr, [] { dice.left = 0; });
}

// Requires: it exists.
MemoryRegion& MemoryTable::slot(std::uint32_t number) const {
  static_assert(2 * size_of(kChunks - 1) == kMaxRegions && size_of(kChunks - 1) <= 1u << kChunkAt);
  const unsigned chunk = chunk_of(number);
  const std::uint32_t before = chunk == 0 ? 0 : size_of(chunk);
  return chunks_[chunk].load(std::memory_order_relaxed)[number - before];
}

// Never the one that the slot had last, and of no index 0: STag 0 names no memory (docs/design/ddp.md).
std::uint32_t MemoryTable::new_key(const MemoryRegion& r) {
  const bool first = (r.place_ & kLaterChunk) == 0;
  const unsigned chunk = first ? 0 : 1 + (r.place_ >> kChunkAt & 7);
  const std::uint32_t end = first ? kLaterChunk : 1u << kChunkAt;
  const std::uint32_t drawn = (end - size_of(chunk)) << 8 | 0xff;
  for (;;) {
    const std::uint32_t key = r.place_ << 8 | (draw() & drawn);
    if (key >> 8 != 0 && key != r.last_) return key;
  }
}

MemoryRegion* MemoryTable::take_slot() {
  const std::uint32_t drawn = draw();
  for (;;) {
    unsigned chunk = 0;
    {
      const llp::Guard guard(lock_);
      refill();
      if (pooled_ == kPool || slots_ == kMaxRegions) {
        if (pooled_ == 0) return nullptr;
        std::swap(pool_[drawn % pooled_], pool_[pooled_ - 1]);
        return pool_[--pooled_];
      }
      chunk = chunk_of(slots_);
    }
    if (!grow(chunk)) return nullptr;
  }
}

// As far as there are slots.
void MemoryTable::refill() {
  while (pooled_ < kPool) {
    if (free_first_ != nullptr && (resting_ > kResting || slots_ == kMaxRegions)) {
      pool_[pooled_++] = free_first_;
      free_first_ = free_first_->next_free_;
      if (free_first_ == nullptr) free_last_ = nullptr;
      --resting_;
      continue;
    }
    if (slots_ == kMaxRegions) return;
    const unsigned chunk = chunk_of(slots_);
    if (chunks_[chunk].load(std::memory_order_relaxed) == nullptr) return;
    MemoryRegion& r = slot(slots_++);
    const auto at = static_cast<std::uint32_t>(&r - chunks_[chunk].load(std::memory_order_relaxed));
    r.place_ = (chunk == 0 ? 0 : kLaterChunk | (chunk - 1) << kChunkAt) | at;
    pool_[pooled_++] = &r;
  }
}

// Another thread may have done so meanwhile. A region in which all is 0 is one of no key: so nothing is written, and
// the pages come with use.
bool MemoryTable::grow(unsigned chunk) {
  struct Free {
    void operator()(MemoryRegion* p) const { std::free(p); }
  };
  static_assert(std::is_trivially_destructible_v<MemoryRegion>);
  std::unique_ptr<MemoryRegion, Free> fresh(
      static_cast<MemoryRegion*>(std::calloc(size_of(chunk), sizeof(MemoryRegion))));
  if (fresh == nullptr) return false;
  const llp::Guard guard(lock_);
  auto& place = chunks_[chunk];
  if (place.load(std::memory_order_relaxed) == nullptr) place.store(fresh.release(), std::memory_order_release);
  return true;
}

void MemoryTable::give_slot(MemoryRegion* r) {
  assert(r->stag() == 0);
  const llp::Guard guard(lock_);
  r->next_free_ = nullptr;
  (free_last_ != nullptr ? free_last_->next_free_ : free_first_) = r;
  free_last_ = r;
  ++resting_;
}

// --- fork() ---

void MemoryTable::before_fork() {
  window_lock_.lock();
  lock_.lock();
}

void MemoryTable::after_fork_parent() {
  lock_.unlock();
  window_lock_.unlock();
}

void MemoryTable::after_fork_child() {
  for (std::uint32_t i = 0; i < slots_; ++i) {
    MemoryRegion& r = slot(i);
    // Looked at first: a page that is not written stays shared with the parent.
    if (r.users_.load(std::memory_order_relaxed) != 0) r.users_.store(0, std::memory_order_relaxed);
  }
  lock_.unlock();
  window_lock_.unlock();
}

}  // namespace ewarp::verbs
