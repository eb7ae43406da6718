// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory regions, which may be kept when nobody uses them, because registering is costly on most adapters.
//
// Where they are kept the application must not unmap memory that it has given to the channel without telling
// (Endpoint::forget): an adapter goes on using the old pages, and what it moves is not what the application sees. So
// only who promises that has them kept.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>

#include "mpi_shim/channel/core/counters.h"
#include "mpi_shim/channel/core/types.h"

namespace ewarp::channel {

class RegistrationCache {
 public:
  // kept: regions without a user that stay; 0: none.
  RegistrationCache(ibv_pd* pd, std::size_t kept, Counters& counters)
      : pd_(pd), most_kept_(kept), counters_(counters) {}
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  struct Region {
    ibv_mr* mr = nullptr;
    int access = 0;
    unsigned users = 0;
    bool stale = false;  // forgotten while in use
    std::list<Region*>::iterator idle;
    std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(mr->addr); }
    std::uintptr_t end() const { return begin() + mr->length; }
  };
  // A region that covers the memory with at least these rights, with one user more. Null: it cannot be registered.
  Region* take(Octets memory, int access);
  void give(Region& region);
  // The memory is about to be unmapped.
  void forget(const void* address, std::size_t octets);
  std::size_t size() const { return regions_.size(); }

 private:
  Region* find(Octets memory, int access);
  void drop(Region& region);

  ibv_pd* pd_;
  std::size_t most_kept_;
  Counters& counters_;
  std::multimap<std::uintptr_t, std::unique_ptr<Region>> regions_;  // by first octet
  std::list<Region*> idle_;                                         // that longest without a user first
};

}  // namespace ewarp::channel
