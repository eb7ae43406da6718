// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory regions, which may be kept when nobody uses them, because registering is costly on most adapters.
//
// An adapter that pins goes on using the pages that it was told of. If the application unmaps memory that is still
// registered, what the adapter moves is not what the application sees. So regions are kept only where a monitor tells
// of that, or the application does (Endpoint::forget) and has promised to.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <memory>

#include "mpi_shim/channel/core/counters.h"
#include "mpi_shim/channel/core/list.h"
#include "mpi_shim/channel/core/types.h"
#include "mpi_shim/channel/memory/monitor.h"

namespace ewarp::channel {

class RegistrationCache {
 public:
  // kept: regions without a user that stay; 0: none. monitor: null: the application tells.
  RegistrationCache(ibv_pd* pd, std::size_t kept, MemoryMonitor* monitor, Counters& counters);
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  struct Region {
    ibv_mr* mr = nullptr;
    int access = 0;
    unsigned users = 0;
    bool stays = false;  // it may be used again
    Links<Region> idle;
    Range range() const {
      const auto begin = reinterpret_cast<std::uintptr_t>(mr->addr);
      return {begin, begin + mr->length};
    }
  };
  enum class Stay : std::uint8_t {
    never,       // for this one use
    if_it_may,   // kept afterwards, if the memory can be watched
    or_nothing,  // null if it would not be
  };
  // A region that covers the memory with at least these rights, with one user more. Null: it cannot be registered.
  Region* take(Octets memory, int access, Stay stay);
  void give(Region& region);
  // The memory is about to be unmapped.
  void forget(const Range& memory);
  // What the monitor has told of is let go. Cheap where there is nothing.
  void look();
  std::size_t size() const { return regions_.size(); }

 private:
  bool keeps() const { return most_kept_ != 0; }
  bool settled();
  Region* find(const Range& memory, int access);
  Region* enter(Octets memory, int access);
  void rest_no_more(Region& region);
  void drop_oldest();
  void drop(Region& region);

  ibv_pd* pd_;
  std::size_t most_kept_;
  MemoryMonitor* monitor_;
  std::uint64_t seen_;  // of the monitor's changes
  Counters& counters_;
  std::multimap<std::uintptr_t, std::unique_ptr<Region>> regions_;  // by first octet
  List<Region, &Region::idle> idle_;                                // that longest without a user first
  std::size_t idle_count_ = 0;
};

}  // namespace ewarp::channel
