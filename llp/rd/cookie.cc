// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/rd/cookie.h"

#include <algorithm>

namespace ewarp::llp::rd {
namespace {

constexpr Time kSlot = 10 * kSecond;

}  // namespace

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
