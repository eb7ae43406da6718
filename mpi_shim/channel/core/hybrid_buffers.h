// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Buffers of the channel's own from which receivers Read what HYBRID sends copied into them. They are shared by all
// peers, come into being as they are needed, and are few: without one the sender falls back to SEND_RNDV.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "mpi_shim/channel/core/transport.h"

namespace ewarp::channel {

class HybridBuffers {
 public:
  HybridBuffers(Transport& transport, std::size_t octets, std::size_t count);
  ~HybridBuffers();
  HybridBuffers(const HybridBuffers&) = delete;
  HybridBuffers& operator=(const HybridBuffers&) = delete;

  struct Buffer {
    std::uint32_t id;
    std::byte* data;
    const Exposed* memory;
    wire::Remote remote;  // of data
  };
  std::optional<Buffer> take(PeerId peer);
  // False: the peer does not have this one.
  bool give(std::uint32_t id, PeerId peer);
  // The peer is gone.
  void give_all_of(PeerId peer);
  std::size_t in_use() const { return in_use_; }

 private:
  static constexpr std::size_t kPerSlab = 8;
  struct Slab {
    std::unique_ptr<std::byte[]> octets;
    Exposed* memory = nullptr;
  };
  bool grow();

  Transport& transport_;
  std::size_t octets_, count_, in_use_ = 0;
  std::vector<Slab> slabs_;
  std::vector<std::optional<PeerId>> owners_;  // by id
  std::vector<std::uint32_t> free_;
};

}  // namespace ewarp::channel
