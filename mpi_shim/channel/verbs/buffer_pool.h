// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Registered buffers of one size, in slabs that come into being as they are needed.
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace ewarp::channel {

class BufferPool {
 public:
  // access: of the registrations, IBV_ACCESS_...
  BufferPool(ibv_pd* pd, std::size_t octets, std::size_t per_slab, int access = IBV_ACCESS_LOCAL_WRITE)
      : pd_(pd), octets_(octets), per_slab_(per_slab), access_(access) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  struct Buffer {
    std::byte* data = nullptr;
    std::uint32_t lkey = 0;
  };
  // data is null if memory cannot be had; nothing is thrown.
  Buffer take();
  // Requires: take() gave it, and nobody did this since.
  void give(const Buffer& buffer) {
    assert(buffer.data != nullptr && free_.size() < slabs_.size() * per_slab_);
    free_.push_back(buffer);
  }
  std::size_t octets() const { return octets_; }  // of a buffer

 private:
  struct Slab {
    std::unique_ptr<std::byte[]> octets;
    ibv_mr* mr;
  };
  bool grow();

  ibv_pd* pd_;
  std::size_t octets_, per_slab_;
  int access_;
  std::vector<Slab> slabs_;
  std::vector<Buffer> free_;
};

}  // namespace ewarp::channel
