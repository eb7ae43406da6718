// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/registration_cache.h"

#include <cassert>

namespace ewarp::channel {
namespace {

Range range_of(Octets memory) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  return {begin, begin + memory.size()};
}

}  // namespace

RegistrationCache::RegistrationCache(ibv_pd* pd, std::size_t kept, MemoryMonitor* monitor, Counters& counters)
    : pd_(pd),
      most_kept_(kept),
      monitor_(monitor),
      seen_(monitor == nullptr ? 0 : monitor->changes().count()),
      counters_(counters) {}

RegistrationCache::~RegistrationCache() {
  for (const auto& [begin, region] : regions_) ibv_dereg_mr(region->mr);
}

// Buffers rarely overlap otherwise than by being the same, so the neighbour to the left is enough.
RegistrationCache::Region* RegistrationCache::find(const Range& memory, int access) {
  auto at = regions_.upper_bound(memory.begin);
  while (at != regions_.begin()) {
    --at;
    Region& r = *at->second;
    if (r.stays && r.range().end >= memory.end && (r.access & access) == access) return &r;
    if (r.range().begin != memory.begin) break;
  }
  return nullptr;
}

// True: no region that stays is of memory that was unmapped since.
bool RegistrationCache::settled() {
  if (monitor_ == nullptr) return true;
  const bool known = monitor_->settled();
  look();  // behind it
  return known;
}

// In this order: the memory is watched from before it is registered, and both behind the look at what had changed.
RegistrationCache::Region* RegistrationCache::take(Octets memory, int access, Stay stay) {
  const Range range = range_of(memory);
  bool stays = keeps() && stay != Stay::never && settled();
  if (Region* r = stays ? find(range, access) : nullptr) {
    counters_.add(Count::registration_hits);
    if (r->users++ == 0) rest_no_more(*r);
    return r;
  }
  stays = stays && (monitor_ == nullptr || monitor_->watch(range));
  if (stay == Stay::or_nothing && !stays) return nullptr;
  Region* const region = enter(memory, access);
  if (region == nullptr) return nullptr;
  counters_.add(Count::registrations);
  if (stays) counters_.add(Count::registrations_kept);
  region->access = access;
  region->users = 1;
  region->stays = stays;
  return region;
}

// What is kept may be what the adapter, or the limit of locked memory, has no room for.
RegistrationCache::Region* RegistrationCache::enter(Octets memory, int access) {
  const auto at = regions_.emplace(range_of(memory).begin, std::make_unique<Region>());
  Region& region = *at->second;
  for (;;) {
    region.mr = ibv_reg_mr(pd_, const_cast<std::byte*>(memory.data()), memory.size(), access);
    if (region.mr != nullptr) return &region;
    if (idle_.empty()) break;
    drop_oldest();
  }
  regions_.erase(at);
  return nullptr;
}

void RegistrationCache::give(Region& region) {
  assert(region.users > 0);
  if (--region.users > 0) return;
  if (!region.stays) return drop(region);
  idle_.push_back(region);
  if (++idle_count_ > most_kept_) drop_oldest();
}

void RegistrationCache::drop_oldest() {
  Region& oldest = *idle_.front();
  rest_no_more(oldest);
  drop(oldest);
}

void RegistrationCache::rest_no_more(Region& region) {
  assert(idle_count_ > 0);
  idle_.remove(region);
  --idle_count_;
}

void RegistrationCache::drop(Region& region) {
  assert(region.users == 0);
  auto [at, last] = regions_.equal_range(region.range().begin);
  ibv_dereg_mr(region.mr);
  while (at != last && at->second.get() != &region) ++at;
  assert(at != last);
  regions_.erase(at);
}

void RegistrationCache::look() {
  if (monitor_ == nullptr || monitor_->changes().count() == seen_) return;
  monitor_->changes().since(seen_, [this](const Change& change) { forget(change.memory); });
}

void RegistrationCache::forget(const Range& memory) {
  for (auto at = regions_.begin(); at != regions_.end() && at->first < memory.end;) {
    Region& r = *(at++)->second;
    if (!r.stays || !r.range().overlaps(memory)) continue;
    counters_.add(Count::registrations_invalidated);
    r.stays = false;
    if (r.users > 0) continue;
    rest_no_more(r);
    drop(r);
  }
}

}  // namespace ewarp::channel
