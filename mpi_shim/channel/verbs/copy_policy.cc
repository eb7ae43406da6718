// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/copy_policy.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

#include "llp/clock.h"

namespace ewarp::channel {

CopyPolicy::CopyPolicy(Registration how, const MemoryCosts& costs)
    : costs_(costs),
      keeps_(how == Registration::kept || how == Registration::monitored),
      costly_(how == Registration::costly || (how == Registration::measured && costly(costs))),
      frequent_(costs) {
  assert(costs.registration_ns >= 0 && costs.copy_ns_per_octet >= 0);
}

// The best of a few rounds: what else the machine does only makes it slower.
MemoryCosts CopyPolicy::measure(ibv_pd* pd) {
  constexpr std::size_t kOctets = 64 << 10;
  std::vector<std::byte> from(kOctets), to(kOctets);
  std::uint64_t registration = ~std::uint64_t{0}, copy = registration;
  for (int round = 0; round < 8; ++round) {
    std::uint64_t began = monotonic_ns();
    ibv_mr* mr = ibv_reg_mr(pd, from.data(), from.size(), IBV_ACCESS_LOCAL_WRITE);
    if (mr != nullptr) ibv_dereg_mr(mr);
    registration = std::min(registration, monotonic_ns() - began);
    began = monotonic_ns();
    std::memcpy(to.data(), from.data(), kOctets);
    from[0] = to[static_cast<std::size_t>(round)];  // so that the copy is made
    copy = std::min(copy, monotonic_ns() - began);
  }
  return {.registration_ns = static_cast<double>(registration),
          .copy_ns_per_octet = static_cast<double>(copy) / kOctets,
          .lookup_ns = 50};
}

bool CopyPolicy::worth_registration(Octets memory) {
  if (memory.size() <= kAlwaysCopied) return false;
  if (keeps_) return frequent_.used(memory.data(), memory.size());
  return !costly_ && costs_.registration_ns < costs_.copy_ns_per_octet * static_cast<double>(memory.size());
}

}  // namespace ewarp::channel
