// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/buffer_pool.h"

#include <new>

namespace ewarp::channel {

BufferPool::~BufferPool() {
  for (const Slab& slab : slabs_) ibv_dereg_mr(slab.mr);
}

// One slab more. Room in the lists comes first: a region that nobody knows of would be registered for ever.
bool BufferPool::grow() {
  try {
    slabs_.reserve(slabs_.size() + 1);
    free_.reserve((slabs_.size() + 1) * per_slab_);
  } catch (const std::bad_alloc&) {
    return false;
  }
  const std::size_t all = octets_ * per_slab_;
  std::unique_ptr<std::byte[]> octets(new (std::nothrow) std::byte[all]);
  ibv_mr* mr = octets ? ibv_reg_mr(pd_, octets.get(), all, access_) : nullptr;
  if (mr == nullptr) return false;
  for (std::size_t i = 0; i < per_slab_; ++i) free_.push_back({.data = octets.get() + i * octets_, .lkey = mr->lkey});
  slabs_.push_back({.octets = std::move(octets), .mr = mr});
  return true;
}

BufferPool::Buffer BufferPool::take() {
  if (free_.empty() && !grow()) return {};
  const Buffer out = free_.back();
  free_.pop_back();
  return out;
}

}  // namespace ewarp::channel
