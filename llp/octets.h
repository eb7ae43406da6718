// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Big-endian fields in octet strings. RFC figures number the most significant bit 0; these helpers take octet offsets.
#pragma once

#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ewarp {

using Octets = std::span<const std::byte>;
using MutableOctets = std::span<std::byte>;

// Requires: at + sizeof(T) <= in.size().
template <std::unsigned_integral T>
constexpr T get_be(Octets in, std::size_t at) {
  assert(at <= in.size() && sizeof(T) <= in.size() - at);
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>((sizeof(T) > 1 ? static_cast<T>(value << 8) : T{0}) | std::to_integer<T>(in[at + i]));
  return value;
}

// Requires: at + sizeof(T) <= out.size().
template <std::unsigned_integral T>
constexpr void put_be(MutableOctets out, std::size_t at, T value) {
  assert(at <= out.size() && sizeof(T) <= out.size() - at);
  for (std::size_t i = 0; i < sizeof(T); ++i) out[at + i] = static_cast<std::byte>(value >> (8 * (sizeof(T) - 1 - i)));
}

}  // namespace ewarp
