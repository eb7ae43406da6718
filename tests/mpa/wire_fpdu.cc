// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/mpa/wire_fpdu.h"

namespace ewarp::test {

std::uint32_t plain_crc32c(Octets in) {
  std::uint32_t r = 0xffffffffu;
  for (const std::byte octet : in) {
    r ^= std::to_integer<std::uint32_t>(octet);
    for (int bit = 0; bit < 8; ++bit) r = (r & 1) != 0 ? r >> 1 ^ 0x82f63b78u : r >> 1;
  }
  return ~r;
}

void WireSender::put(Bytes& out, std::byte octet) {
  out.push_back(octet);
  ++position_;
}

void WireSender::put_marker(Bytes& out, std::uint64_t pointer, const Oddities& odd) {
  const auto p = static_cast<unsigned>(pointer ^ odd.pointer_xor);
  const unsigned reserved = odd.reserved;
  for (const unsigned octet : {reserved >> 8, reserved & 0xff, p >> 8 & 0xff, p & 0xff})
    put(out, static_cast<std::byte>(octet));
}

Bytes WireSender::fpdu(Octets ulpdu, const Oddities& odd) {
  Bytes plain{static_cast<std::byte>(ulpdu.size() >> 8), static_cast<std::byte>(ulpdu.size() & 0xff)};
  plain.insert(plain.end(), ulpdu.begin(), ulpdu.end());
  while (plain.size() % 4 != 0) plain.push_back(odd.pad);

  Bytes out;
  if (markers_ && position_ % 512 == 0) put_marker(out, 0, odd);
  const std::uint64_t start = position_;
  for (const std::byte octet : plain) {
    if (markers_ && position_ % 512 == 0) put_marker(out, position_ - start, odd);
    put(out, octet);
  }
  if (markers_ && position_ % 512 == 0) put_marker(out, position_ - start, odd);
  const std::uint32_t crc = (crc_ ? plain_crc32c(out) : 0) ^ odd.crc_xor;
  for (unsigned i = 0; i < 4; ++i) put(out, static_cast<std::byte>(crc >> 8 * i & 0xff));
  return out;
}

Bytes flatten(const llp::Gather& gather) {
  Bytes out;
  for (const iovec& v : gather.vectors()) {
    const auto* at = static_cast<const std::byte*>(v.iov_base);
    out.insert(out.end(), at, at + v.iov_len);
  }
  return out;
}

llp::Extent extent_of(Octets octets) {
  llp::Extent e;
  e.address = const_cast<std::byte*>(octets.data());  // gathered, never written
  e.length = octets.size();
  return e;
}

Bytes some_ulpdu(std::size_t n, unsigned seed) {
  Bytes out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>((i * 7 + seed * 31 + 1) & 0xff);
  return out;
}

}  // namespace ewarp::test
