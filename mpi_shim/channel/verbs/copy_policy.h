// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether the adapter gets small memory of the user's itself, or a copy. Pure but for measure().
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>

#include "mpi_shim/channel/core/types.h"
#include "mpi_shim/channel/verbs/frequent_buffers.h"

namespace ewarp::channel {

class CopyPolicy {
 public:
  // Up to here memory is copied in any case.
  static constexpr std::size_t kAlwaysCopied = 128;

  CopyPolicy(Registration how, const MemoryCosts& costs);
  // What registering and copying cost here, with a protection domain of the adapter.
  static MemoryCosts measure(ibv_pd* pd);
  // Registering pins pages, to judge by its time.
  static bool costly(const MemoryCosts& costs) { return costs.registration_ns >= kCheapRegistrationNs; }

  // One more use of memory that would have to be registered for it. True: that is worth it.
  bool worth_registration(Octets memory);
  // What was worth it cannot be registered, or would not stay so.
  void in_vain(Octets memory) { frequent_.in_vain(memory.data(), memory.size()); }
  // For memory that needs no registration. True: a copy takes so long that having the source back at once is not worth
  // it.
  bool slow_to_copy(std::size_t octets) const {
    return costs_.copy_ns_per_octet * static_cast<double>(octets) > kShortCopyNs;
  }
  // Registrations outlive their use, so only what is used frequently gets one.
  bool keeps() const { return keeps_; }

 private:
  static constexpr double kShortCopyNs = 500;
  static constexpr double kCheapRegistrationNs = 5'000;

  const MemoryCosts costs_;
  const bool keeps_, costly_;  // costly_: copying is always better
  FrequentBuffers frequent_;
};

}  // namespace ewarp::channel
