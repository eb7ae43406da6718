// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/regions.h"

#include <cerrno>

namespace ewarp::acp {
namespace {

// 4-octet atomics are made of those of 8, so a region is registered to the borders of such words.
constexpr std::uintptr_t kWord = 8;

std::uintptr_t down(std::uintptr_t at) {
  return at / kWord * kWord;
}

// All but 0, in turns.
std::uint32_t next_tag(std::uint32_t tag) {
  return tag % (GlobalAddress::kTags - 1) + 1;
}

}  // namespace

OwnRegions::OwnRegions(Path& path, Area& area, std::uint32_t starter_octets, const Registration& area_region)
    : path_(path), area_(area), starter_octets_(starter_octets), area_region_(area_region) {}

OwnRegions::~OwnRegions() {
  for (void* handle : handles_)
    if (handle != nullptr) path_.transport.deregister(handle);
}

std::uint64_t OwnRegions::add(void* memory, std::size_t octets) {
  if (memory == nullptr || octets == 0 || octets > GlobalAddress::kMostOctets) return errno = EINVAL, 0;
  std::uint32_t tag = next_tag_;
  for (std::uint32_t tries = 1; handles_[tag] != nullptr; ++tries) {
    if (tries == GlobalAddress::kTags) return errno = EAGAIN, 0;
    tag = next_tag(tag);
  }
  const std::uintptr_t from = reinterpret_cast<std::uintptr_t>(memory), begin = down(from);
  Registration r;
  if (!path_.transport.register_memory(reinterpret_cast<void*>(begin), down(from + octets + kWord - 1) - begin, &r))
    return 0;
  handles_[tag] = r.handle;
  area_.regions[tag] = {.address = from, .octets = octets, .rkey = r.rkey, .reserved = 0};
  next_tag_ = next_tag(tag);
  return std::uint64_t{generations_[tag]} << GlobalAddress::kTagBits | tag;
}

// 0: it is no key.
std::uint32_t OwnRegions::tag_of(std::uint64_t key) const {
  const std::uint32_t tag = static_cast<std::uint32_t>(key % GlobalAddress::kTags);
  return handles_[tag] != nullptr && key >> GlobalAddress::kTagBits == generations_[tag] ? tag : 0;
}

bool OwnRegions::remove(std::uint64_t key) {
  const std::uint32_t tag = tag_of(key);
  if (tag == 0) return errno = EBADF, false;
  path_.transport.deregister(handles_[tag]);
  handles_[tag] = nullptr;
  ++generations_[tag];
  area_.regions[tag] = {};
  return true;
}

std::uint64_t OwnRegions::global(std::uint64_t key, const void* address) const {
  const std::uint32_t tag = tag_of(key);
  if (tag == 0) return errno = EBADF, 0;
  const std::uint64_t offset = reinterpret_cast<std::uintptr_t>(address) - area_.regions[tag].address;
  if (offset >= area_.regions[tag].octets) return errno = EINVAL, 0;
  return GlobalAddress{path_.rank, tag, offset}.emit();
}

OwnRegions::Local OwnRegions::local(const GlobalAddress& ga, std::uint64_t octets) const {
  if (ga.rank != path_.rank) return {};
  const std::uint64_t have = ga.tag == 0 ? starter_octets_ : area_.regions[ga.tag].octets;
  if (ga.offset > have || octets > have - ga.offset) return {};
  if (ga.tag == 0) return {area_.starter() + ga.offset, area_region_.lkey, area_region_.rkey};
  const Registration r = path_.transport.registration(handles_[ga.tag]);
  return {reinterpret_cast<std::byte*>(area_.regions[ga.tag].address) + ga.offset, r.lkey, r.rkey};
}

const RegionEntry* RegionCache::find(const GlobalAddress& ga) const {
  const Slot& s = slots_[slot_of(ga)];
  return s.key == key_of(ga) && !s.doubted ? &s.entry : nullptr;
}

void RegionCache::put(const GlobalAddress& ga, const RegionEntry& entry) {
  Slot& s = slots_[slot_of(ga)];
  const bool same = s.key == key_of(ga) && s.entry == entry;
  s = {key_of(ga), entry, false};
  if (!same) doubt_next(ga);
}

void RegionCache::doubt(const GlobalAddress& ga) {
  Slot& s = slots_[slot_of(ga)];
  if (s.key == key_of(ga)) s.doubted = true;
}

void RegionCache::doubt_next(GlobalAddress ga) {
  for (std::uint32_t n = 0; n < kDoubted; ++n) {
    ga.tag = next_tag(ga.tag);
    doubt(ga);
  }
}

}  // namespace ewarp::acp
