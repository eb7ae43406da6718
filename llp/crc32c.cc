// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/crc32c.h"

#include <cassert>

#include "llp/guarded_crc.h"

namespace ewarp::llp {

void Crc32c::update(Octets in) {
  [[maybe_unused]] const bool there = guarded_crc32c(in.data(), in.size(), &register_);
  assert(there);
}

bool Crc32c::read(const std::byte* from, std::size_t n) {
  return guarded_crc32c(from, n, &register_);
}

bool Crc32c::copy(std::byte* to, const std::byte* from, std::size_t n) {
  return guarded_copy_crc32c(to, from, n, &register_);
}

void Crc32c::emit(std::span<std::byte, 4> out) const {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(value() >> (8 * i));
}

bool Crc32c::matches(std::span<const std::byte, 4> field) const {
  std::uint32_t sent = 0;
  for (std::size_t i = 0; i < field.size(); ++i) sent |= std::to_integer<std::uint32_t>(field[i]) << (8 * i);
  return sent == value();
}

}  // namespace ewarp::llp
