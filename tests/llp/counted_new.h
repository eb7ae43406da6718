// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts what a test program asks of operator new. In one source of a program only: it replaces it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::size_t g_allocated = 0;    // octets asked for and not given back
std::size_t g_allocations = 0;  // calls

}  // namespace

// Each block carries its size in front of it.
void* operator new(std::size_t n) {
  constexpr std::size_t kFront = alignof(std::max_align_t);
  auto* p = static_cast<std::byte*>(std::malloc(n + kFront));
  if (p == nullptr) std::abort();
  *reinterpret_cast<std::size_t*>(p) = n;
  g_allocated += n;
  ++g_allocations;
  return p + kFront;
}
void operator delete(void* p) noexcept {
  if (p == nullptr) return;
  auto* front = static_cast<std::byte*>(p) - alignof(std::max_align_t);
  g_allocated -= *reinterpret_cast<std::size_t*>(front);
  std::free(front);
}
void operator delete(void* p, std::size_t) noexcept {
  operator delete(p);
}
// Sanitizers bring array forms of their own.
void* operator new[](std::size_t n) {
  return operator new(n);
}
void operator delete[](void* p) noexcept {
  operator delete(p);
}
void operator delete[](void* p, std::size_t) noexcept {
  operator delete(p);
}
