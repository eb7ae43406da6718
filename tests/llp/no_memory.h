// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// operator new of this program, which refuses what a test says. Include it in one source of a program.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

namespace ewarp::test {

// Of any thread, by size. new (std::nothrow) is not asked.
inline std::atomic<std::size_t> no_memory_for{0};  // octets; once: 0 again when somebody has asked for them
inline std::atomic<std::size_t> scarce{0};         // octets of a block; 0: nothing is scarce
inline std::atomic<int> scarce_left{0};            // so many more of them can be had

// Of this thread.
inline constexpr int kAll = std::numeric_limits<int>::max();
inline constexpr std::size_t kAnySize = std::numeric_limits<std::size_t>::max();
inline thread_local constinit int allocations_left = kAll;
inline thread_local constinit std::size_t largest_block = kAnySize;

inline bool new_refuses_thread(std::size_t n) {
  return n > largest_block || (allocations_left != kAll && --allocations_left < 0);
}

inline bool new_refuses(std::size_t n) {
  std::size_t once = n;
  if (n != 0 && no_memory_for.compare_exchange_strong(once, 0)) return true;
  if (n != 0 && n == scarce && --scarce_left < 0) return true;
  return new_refuses_thread(n);
}

// f() with memory for so many allocations. True: it threw std::bad_alloc.
template <class F>
bool lacks_memory(int allocations, F f) {
  allocations_left = allocations;
  bool threw = false;
  try {
    f();
  } catch (const std::bad_alloc&) {
    threw = true;
  }
  allocations_left = kAll;
  return threw;
}

// f() while so many blocks of so many octets can be had. True: it threw std::bad_alloc.
template <class F>
bool lacks_blocks(std::size_t octets, int blocks, F f) {
  scarce_left = blocks;
  scarce = octets;
  bool threw = false;
  try {
    f();
  } catch (const std::bad_alloc&) {
    threw = true;
  }
  scarce = 0;
  return threw;
}

}  // namespace ewarp::test

[[gnu::noinline]] void* operator new(std::size_t n) {
  if (ewarp::test::new_refuses(n)) throw std::bad_alloc();
  void* p = std::malloc(n > 0 ? n : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return ewarp::test::new_refuses_thread(n) ? nullptr : std::malloc(n > 0 ? n : 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
// Sanitizers bring forms of their own, whose memory is not for free().
[[gnu::noinline]] void* operator new[](std::size_t n) {
  return operator new(n);
}
[[gnu::noinline]] void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return operator new(n, std::nothrow);
}
[[gnu::noinline]] void operator delete[](void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void* operator new[](std::size_t n, std::align_val_t alignment) {
  if (ewarp::test::new_refuses(n)) throw std::bad_alloc();
  const auto unit = static_cast<std::size_t>(alignment);
  void* p = std::aligned_alloc(unit, (n + unit - 1) / unit * unit);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
[[gnu::noinline]] void operator delete[](void* p, std::align_val_t) noexcept {
  std::free(p);
}
