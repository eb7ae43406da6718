// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A table that grows and whose elements stay where they are: looked up by any thread without a lock.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>

#include "llp/mutex.h"

namespace ewarp::ofi {

template <class T>
class Table {
 public:
  Table() = default;
  ~Table() {
    for (auto& chunk : chunks_) delete[] chunk.load();
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  // Null where nothing was made yet.
  T* find(std::size_t index) const {
    const Place p(index);
    if (p.chunk >= kChunks) return nullptr;
    T* chunk = chunks_[p.chunk].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : chunk + p.offset;
  }
  // Requires: index < 2^40.
  T& make(std::size_t index) {
    if (T* there = find(index)) return *there;
    const llp::Guard lock(growing_);
    const Place p(index);
    if (chunks_[p.chunk].load() == nullptr)
      chunks_[p.chunk].store(std::make_unique<T[]>(kFirst << p.chunk).release(), std::memory_order_release);
    return *find(index);
  }

 private:
  static constexpr std::size_t kFirst = 64, kChunks = 35;
  // Chunk i has kFirst << i elements.
  struct Place {
    explicit Place(std::size_t index)
        : chunk(static_cast<std::size_t>(std::bit_width(index / kFirst + 1)) - 1),
          offset(index - kFirst * ((std::size_t{1} << chunk) - 1)) {}
    std::size_t chunk, offset;
  };
  std::array<std::atomic<T*>, kChunks> chunks_{};
  llp::Mutex growing_;
};

}  // namespace ewarp::ofi
