// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory that datagrams refer to between their making and the system call that sends them.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>

#include "llp/udp_outbox.h"
#include "provider/verbs/memory/memory.h"
#include "rdmap/request.h"

namespace ewarp::verbs {

// Payload up to this is copied behind its header: one piece of memory costs the kernel less than three. Octets.
inline constexpr std::uint32_t kCopyLimit = 512;

// Threading: engine held.
class HeldRegions {
 public:
  bool has_room() const { return count_ + rdmap::ExtentList::kMax <= regions_.size(); }
  // False: it is no longer registered. Memory of our own needs nothing.
  bool enter(const llp::Extent& e) {
    if (e.region == nullptr) return true;
    if (!memory().enter(e.region, e.ticket)) return false;
    assert(count_ < regions_.size());
    regions_[count_++] = e.region;
    return true;
  }
  void leave() {
    while (count_ > 0) memory().leave(regions_[--count_]);
  }

 private:
  std::array<void*, llp::UdpOutbox::kVectors> regions_{};
  std::size_t count_ = 0;
};

}  // namespace ewarp::verbs
