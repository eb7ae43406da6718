// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/rd/cookie.h"

#include <algorithm>
#include <bit>

namespace ewarp::llp::rd {
namespace {

constexpr Time kSlot = 10 * kSecond;

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

// Little-endian, as the algorithm has it; n <= 8.
std::uint64_t word_at(Octets in, std::size_t at, std::size_t n) {
  std::uint64_t w = 0;
  for (std::size_t i = 0; i < n; ++i) w |= std::to_integer<std::uint64_t>(in[at + i]) << 8 * i;
  return w;
}

}  // namespace

std::uint64_t siphash(const std::array<std::uint64_t, 2>& key, Octets in) {
  SipState s{key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du, key[0] ^ 0x6c7967656e657261u,
             key[1] ^ 0x7465646279746573u};
  std::size_t at = 0;
  for (; at + 8 <= in.size(); at += 8) s.take(word_at(in, at, 8));
  s.take(word_at(in, at, in.size() - at) | static_cast<std::uint64_t>(in.size()) << 56);
  s.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) s.round();
  return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

std::uint64_t CookieJar::of_slot(std::uint64_t slot, const Key& who, std::uint16_t port,
                                 std::uint32_t initial_tag) const {
  std::array<std::byte, 42> in;
  std::copy(who.ip.begin(), who.ip.end(), in.begin());
  put_be<std::uint32_t>(in, 16, who.local_qpn);
  put_be<std::uint32_t>(in, 20, who.remote_qpn);
  put_be<std::uint32_t>(in, 24, who.qkey);
  put_be<std::uint32_t>(in, 28, initial_tag);
  put_be<std::uint64_t>(in, 32, slot);
  put_be<std::uint16_t>(in, 40, port);
  return std::max<std::uint64_t>(1, siphash(key_, in));
}

std::uint64_t CookieJar::make(Time now, const Key& who, std::uint16_t port, std::uint32_t initial_tag) const {
  return of_slot(now / kSlot, who, port, initial_tag);
}

bool CookieJar::good(Time now, const Key& who, std::uint16_t port, std::uint32_t initial_tag,
                     std::uint64_t cookie) const {
  const std::uint64_t slot = now / kSlot;
  return cookie != 0 && (cookie == of_slot(slot, who, port, initial_tag) ||
                         (slot > 0 && cookie == of_slot(slot - 1, who, port, initial_tag)));
}

}  // namespace ewarp::llp::rd
