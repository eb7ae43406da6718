// Memory that peers may reach: by Reads and Writes of the adapter, and by atomics, which we carry out ourselves.
#pragma once

#include <rdma/fi_domain.h>

#include <cstdint>
#include <map>
#include <mutex>

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
    const std::lock_guard lock(mutex_);
    if (!allows(key, address, length, rights)) return false;
    f();
    return true;
  }

 private:
  bool allows(std::uint64_t key, std::uint64_t address, std::uint64_t length, std::uint64_t rights) const;

  std::mutex mutex_;
  std::map<std::uint64_t, const MemoryRegion*> by_key_;
};

extern fi_ops_mr memory_ops;

}  // namespace ewarp::ofi
