// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The memory of the boards. It is registered at once and mapped page by page: a board takes memory when its peer is
// talked to.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "mpi_shim/channel/verbs/device.h"
#include "mpi_shim/gravel/core/ledger.h"

namespace ewarp::gravel {

class Boards {
 public:
  // Nothing if there is no memory for it.
  static std::optional<Boards> make(int procs, std::shared_ptr<channel::Device> device) {
    const std::size_t size = static_cast<std::size_t>(procs) * board::kOctets;
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return std::nullopt;
    Boards out(static_cast<std::byte*>(memory), size);
    const auto region = device->expose({out.data_, size}, false, true);
    if (!region) return std::nullopt;
    out.region_ = *region;
    out.device_ = std::move(device);
    return out;
  }
  Boards(Boards&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(other.size_),
        region_(other.region_),
        device_(std::move(other.device_)) {}
  Boards& operator=(Boards&&) = delete;
  ~Boards() {
    if (device_) device_->conceal(region_);
    if (data_ != nullptr) munmap(data_, size_);
  }

  const std::byte* data() const { return data_; }
  // For the peers.
  Remote remote() const { return {region_.remote.address, region_.remote.key}; }

 private:
  Boards(std::byte* data, std::size_t size) : data_(data), size_(size) {}

  std::byte* data_;
  std::size_t size_;
  channel::Device::Region region_;
  std::shared_ptr<channel::Device> device_;
};

}  // namespace ewarp::gravel
