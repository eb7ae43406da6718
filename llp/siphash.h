// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// SipHash-2-4 (Aumasson, Bernstein 2012): a short tag that nobody can make without the key.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ewarp::llp {

using SipKey = std::array<std::uint64_t, 2>;

struct SipState {
  std::uint64_t v0, v1, v2, v3;
  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void take(std::uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
};

inline std::uint64_t siphash(const SipKey& key, std::span<const std::byte> in) {
  // Little-endian, as the algorithm has it, of at most eight octets.
  const auto word_of = [](std::span<const std::byte> octets) {
    std::uint64_t w = 0;
    unsigned shift = 0;
    for (const std::byte b : octets) {
      w |= std::to_integer<std::uint64_t>(b) << shift;
      shift += 8;
    }
    return w;
  };
  SipState s{key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du, key[0] ^ 0x6c7967656e657261u,
             key[1] ^ 0x7465646279746573u};
  std::span<const std::byte> rest = in;
  for (; rest.size() >= 8; rest = rest.subspan(8)) s.take(word_of(rest.first(8)));
  s.take(word_of(rest) | static_cast<std::uint64_t>(in.size()) << 56);
  s.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) s.round();
  return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

}  // namespace ewarp::llp
