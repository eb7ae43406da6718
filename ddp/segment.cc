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

}  // namespace ewarp::ddp
