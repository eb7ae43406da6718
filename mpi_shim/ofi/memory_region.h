// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory that peers may reach: by Reads and Writes of the adapter, and by atomics, which we carry out ourselves.
#pragma once

#include <rdma/fi_domain.h>

#include <cstdint>
#include <map>

#include "llp/annotations.h"
#include "llp/mutex.h"
#include "mpi_shim/channel/verbs/device.h"

namespace ewarp::ofi {

struct Domain;

struct MemoryRegion : fid_mr {
  Domain* domain = nullptr;
  channel::Device::Region region;
  std::uint64_t address = 0, length = 0, access = 0;
};

// The regions of a domain, by key.
class Regions {
 public:
  void add(const MemoryRegion& region);
  void remove(const MemoryRegion& region);
  // Runs f while the region stays registered. False, without running it: there is none with this key, range and rights.
  template <class F>
  bool with(std::uint64_t key, std::uint64_t address, std::uint64_t length, std::uint64_t rights, F&& f) {
    const llp::Guard lock(mutex_);
    if (!allows(key, address, length, rights)) return false;
    f();
    return true;
  }

 private:
  bool allows(std::uint64_t key, std::uint64_t address, std::uint64_t length, std::uint64_t rights) const
      EWARP_REQUIRES(mutex_);

  llp::Mutex mutex_;
  std::map<std::uint64_t, const MemoryRegion*> by_key_ EWARP_GUARDED_BY(mutex_);
};

extern fi_ops_mr memory_ops;

}  // namespace ewarp::ofi
