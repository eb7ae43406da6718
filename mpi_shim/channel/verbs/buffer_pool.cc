// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/buffer_pool.h"

#include <new>

namespace ewarp::channel {

BufferPool::~BufferPool() {
  for (const Slab& slab : slabs_) ibv_dereg_mr(slab.mr);
}

BufferPool::Buffer BufferPool::take() {
  if (free_.empty()) {
    const std::size_t all = octets_ * per_slab_;
    std::unique_ptr<std::byte[]> octets(new (std::nothrow) std::byte[all]);
    ibv_mr* mr = octets ? ibv_reg_mr(pd_, octets.get(), all, access_) : nullptr;
    if (mr == nullptr) return {};
    for (std::size_t i = 0; i < per_slab_; ++i) free_.push_back({.data = octets.get() + i * octets_, .lkey = mr->lkey});
    slabs_.push_back({.octets = std::move(octets), .mr = mr});
  }
  const Buffer out = free_.back();
  free_.pop_back();
  return out;
}

}  // namespace ewarp::channel
