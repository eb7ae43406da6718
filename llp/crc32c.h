// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// CRC32C as MPA uses it (RFC 5044 section 4.4, RFC 3720 section 12.1).
#pragma once

#include <cstdint>

#include "llp/octets.h"

namespace ewarp::llp {

// A running CRC32C. value() is the finished 32-bit CRC (0xE3069283 for "123456789"); on the wire it stands least
// significant octet first. Cost: guarded_crc.h.
class Crc32c {
 public:
  // Memory of our own.
  void update(Octets in);
  // The same over memory of others, which may have gone; the second one copies it to `to` in the same pass
  // (guarded_crc.h). False: a page was not accessible, the value is that of before.
  [[nodiscard]] bool read(const std::byte* from, std::size_t n);
  [[nodiscard]] bool copy(std::byte* to, const std::byte* from, std::size_t n);
  std::uint32_t value() const { return ~register_; }
  // The four octets as they are sent.
  void emit(std::span<std::byte, 4> out) const;
  // True if `field` is what emit() would write.
  bool matches(std::span<const std::byte, 4> field) const;
  void reset() { register_ = 0xffffffffu; }

 private:
  std::uint32_t register_ = 0xffffffffu;
};

}  // namespace ewarp::llp
