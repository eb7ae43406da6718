// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "ddp/untagged.h"

#include <cassert>
#include <limits>

namespace ewarp::ddp {

std::optional<Fault> UntaggedQueues::check_queue(const UntaggedHeader& h) const {
  if (h.qn >= queues_) return fault::kDdpInvalidQn;
  // On an ordered LLP the only MSN in range is the next one; it wraps to 0 by itself.
  if (h.msn != state_[h.qn].msn) return fault::kDdpMsnRange;
  return std::nullopt;
}

std::optional<Fault> UntaggedQueues::check_offset(const UntaggedHeader& h, std::size_t payload) const {
  assert(!check_queue(h));
  if (h.mo != state_[h.qn].mo) return fault::kDdpInvalidMo;
  // In 64 bits: both summands are the peer's. A message is shorter than 2^32 octets (RFC 5041 section 5.2).
  if (std::uint64_t{h.mo} + payload > std::numeric_limits<std::uint32_t>::max()) return fault::kDdpInvalidMo;
  return std::nullopt;
}

void UntaggedQueues::advance(const UntaggedHeader& h, std::size_t payload) {
  assert(!check_queue(h) && !check_offset(h, payload));
  Queue& q = state_[h.qn];
  if (h.last) {
    q = Queue{q.msn + 1, 0, false};
  } else {
    q.mo += static_cast<std::uint32_t>(payload);
    q.open = true;
  }
}

}  // namespace ewarp::ddp
