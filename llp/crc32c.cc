#include "llp/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace ewarp::llp {

namespace {

// ISA-L takes the length as an int.
constexpr std::size_t kLargestPiece = std::size_t{1} << 30;

}  // namespace

void Crc32c::update(Octets in) {
  while (!in.empty()) {
    const Octets piece = in.first(std::min(in.size(), kLargestPiece));
    // crc32_iscsi() neither presets nor complements: it carries the bare register, and only reads the buffer although
    // its type does not say so.
    auto* octets = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(piece.data()));
    register_ = crc32_iscsi(octets, static_cast<int>(piece.size()), register_);
    in = in.subspan(piece.size());
  }
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
