// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// operator new of this program: no memory, once, for so many octets. Include it in one source of a program.
#pragma once

#include <atomic>
#include <cstdlib>
#include <new>

namespace ewarp::test {

inline std::atomic<std::size_t> no_memory_for{0};  // 0 again when somebody has asked for them

}  // namespace ewarp::test

[[gnu::noinline]] void* operator new(std::size_t n) {
  std::size_t refused = n;
  if (n != 0 && ewarp::test::no_memory_for.compare_exchange_strong(refused, 0)) throw std::bad_alloc();
  void* p = std::malloc(n);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return std::malloc(n);
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
  return std::malloc(n);
}
[[gnu::noinline]] void operator delete[](void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept {
  std::free(p);
}
