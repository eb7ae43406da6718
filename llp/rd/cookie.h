// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The cookie of an OPEN that has to prove its address: no state is kept until it comes back.
#pragma once

#include <array>
#include <cstdint>

#include "llp/octets.h"
#include "llp/rd/types.h"
#include "llp/siphash.h"

namespace ewarp::llp::rd {

using llp::siphash;

class CookieJar {
 public:
  explicit CookieJar(const std::array<std::uint64_t, 2>& key) : key_(key) {}
  // Never 0: that is an OPEN without cookie.
  std::uint64_t make(Time now, const Key& who, std::uint16_t port, std::uint32_t initial_tag) const;
  // True for what make() gave within the last 10 to 20 seconds.
  bool good(Time now, const Key& who, std::uint16_t port, std::uint32_t initial_tag, std::uint64_t cookie) const;

 private:
  std::uint64_t of_slot(std::uint64_t slot, const Key& who, std::uint16_t port, std::uint32_t initial_tag) const;
  std::array<std::uint64_t, 2> key_;
};

}  // namespace ewarp::llp::rd
