// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/registration_cache.h"

#include <cassert>

namespace ewarp::channel {

RegistrationCache::~RegistrationCache() {
  for (const auto& [begin, region] : regions_) ibv_dereg_mr(region->mr);
}

// Buffers rarely overlap otherwise than by being the same, so the neighbour to the left is enough.
RegistrationCache::Region* RegistrationCache::find(Octets memory, int access) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  auto at = regions_.upper_bound(begin);
  while (at != regions_.begin()) {
    --at;
    Region& r = *at->second;
    if (!r.stale && r.end() >= begin + memory.size() && (r.access & access) == access) return &r;
    if (r.begin() != begin) break;
  }
  return nullptr;
}

RegistrationCache::Region* RegistrationCache::take(Octets memory, int access) {
  if (Region* r = most_kept_ == 0 ? nullptr : find(memory, access)) {
    counters_.add(Count::registration_hits);
    if (r->users++ == 0) idle_.erase(r->idle);
    return r;
  }
  ibv_mr* mr = ibv_reg_mr(pd_, const_cast<std::byte*>(memory.data()), memory.size(), access);
  if (mr == nullptr) return nullptr;
  counters_.add(Count::registrations);
  auto region = std::make_unique<Region>();
  region->mr = mr;
  region->access = access;
  region->users = 1;
  return regions_.emplace(reinterpret_cast<std::uintptr_t>(memory.data()), std::move(region))->second.get();
}

void RegistrationCache::give(Region& region) {
  assert(region.users > 0);
  if (--region.users > 0) return;
  if (most_kept_ == 0 || region.stale) return drop(region);
  region.idle = idle_.insert(idle_.end(), &region);
  if (idle_.size() <= most_kept_) return;
  Region& oldest = *idle_.front();
  idle_.pop_front();
  drop(oldest);
}

void RegistrationCache::drop(Region& region) {
  assert(region.users == 0);
  auto [at, last] = regions_.equal_range(region.begin());
  ibv_dereg_mr(region.mr);
  while (at != last && at->second.get() != &region) ++at;
  assert(at != last);
  regions_.erase(at);
}

void RegistrationCache::forget(const void* address, std::size_t octets) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address), end = begin + octets;
  for (auto at = regions_.begin(); at != regions_.end();) {
    Region& r = *(at++)->second;
    if (r.begin() >= end || r.end() <= begin) continue;
    if (r.users > 0) {
      r.stale = true;
      continue;
    }
    idle_.erase(r.idle);
    drop(r);
  }
}

}  // namespace ewarp::channel
