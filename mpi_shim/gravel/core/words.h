// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Words of 4 octets, big-endian, in memory that a peer may be writing meanwhile.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ewarp::gravel {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint32_t high(std::uint64_t v) {
  return static_cast<std::uint32_t>(v >> 32);
}
constexpr std::uint32_t low(std::uint64_t v) {
  return static_cast<std::uint32_t>(v);
}
constexpr std::uint64_t whole(std::uint32_t high, std::uint32_t low) {
  return std::uint64_t{high} << 32 | low;
}

// Requires: 4-octet alignment. What was placed before the word is seen behind it.
inline std::uint32_t load_word(const std::byte* at) {
  std::byte* p = const_cast<std::byte*>(at);
  const std::atomic_ref<std::uint32_t> word(*reinterpret_cast<std::uint32_t*>(p));
  return __builtin_bswap32(word.load(std::memory_order_acquire));
}
// Memory of this process alone.
inline void store_word(std::byte* at, std::uint32_t value) {
  const std::uint32_t v = __builtin_bswap32(value);
  __builtin_memcpy(at, &v, sizeof v);
}

}  // namespace ewarp::gravel
