// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "ddp/segment.h"

#include <cassert>

namespace ewarp::ddp {

Cut cut(std::uint64_t length, std::uint64_t offset, std::size_t mulpdu, std::size_t header) {
  assert(mulpdu > header && (offset < length || length == 0));
  const std::uint64_t left = length - offset;
  const std::uint64_t room = mulpdu - header;
  const std::uint64_t payload = std::min(left, room);
  return Cut{offset, static_cast<std::uint32_t>(payload), payload == left};
}

Cut cut_evenly(std::uint64_t length, std::uint64_t offset, std::size_t mulpdu, std::size_t header) {
  assert(mulpdu > header);
  constexpr std::uint64_t kFew = 16;  // in more, the shorter last one matters little
  const std::size_t room = mulpdu - header;
  const std::uint64_t segments = (length + room - 1) / room;
  if (segments < 2 || segments > kFew) return cut(length, offset, mulpdu, header);
  return cut(length, offset, static_cast<std::size_t>((length + segments - 1) / segments) + header, header);
}

}  // namespace ewarp::ddp
