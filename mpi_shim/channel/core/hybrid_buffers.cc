// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/core/hybrid_buffers.h"

#include <cassert>
#include <new>

#include "mpi_shim/channel/core/room.h"

namespace ewarp::channel {

HybridBuffers::HybridBuffers(Transport& transport, std::size_t octets, std::size_t count)
    : transport_(transport), octets_(octets), count_(count) {}

HybridBuffers::~HybridBuffers() {
  for (const Slab& slab : slabs_) transport_.conceal(slab.memory);
}

bool HybridBuffers::grow() {
  if (owners_.size() >= count_) return false;
  slabs_.reserve(slabs_.size() + 1);
  make_room(owners_, free_, kPerSlab);
  Slab slab;
  slab.octets.reset(new (std::nothrow) std::byte[kPerSlab * octets_]);
  if (!slab.octets) return false;
  slab.memory = transport_.expose({slab.octets.get(), kPerSlab * octets_}, Transport::Reach::read);
  if (slab.memory == nullptr) return false;
  slabs_.push_back(std::move(slab));
  for (std::size_t i = 0; i < kPerSlab && owners_.size() < count_; ++i) {
    free_.push_back(static_cast<std::uint32_t>(owners_.size()));
    owners_.emplace_back();
  }
  return true;
}

std::optional<HybridBuffers::Buffer> HybridBuffers::take(PeerId peer) {
  if (free_.empty() && !grow()) return std::nullopt;
  const std::uint32_t id = free_.back();
  free_.pop_back();
  assert(id < owners_.size() && !owners_[id]);
  owners_[id] = peer;
  ++in_use_;
  assert(in_use_ + free_.size() == owners_.size() && owners_.size() <= count_);
  const Slab& slab = slabs_[id / kPerSlab];
  const std::size_t offset = id % kPerSlab * octets_;
  wire::Remote remote = slab.memory->remote;
  remote.address += offset;
  return Buffer{.id = id, .data = slab.octets.get() + offset, .memory = slab.memory, .remote = remote};
}

bool HybridBuffers::give(std::uint32_t id, PeerId peer) {
  if (id >= owners_.size() || owners_[id] != peer) return false;
  owners_[id].reset();
  free_.push_back(id);
  --in_use_;
  return true;
}

void HybridBuffers::give_all_of(PeerId peer) {
  for (std::uint32_t id = 0; id < owners_.size(); ++id)
    if (owners_[id] == peer) give(id, peer);
}

}  // namespace ewarp::channel
