// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Octet strings field by field, most significant octet first.
#pragma once

#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "mpi_shim/channel/core/types.h"

namespace ewarp::channel::wire {

// Requires: there is room.
class Writer {
 public:
  explicit Writer(MutableOctets out) : out_(out) {}
  template <std::unsigned_integral T>
  Writer& put(T value) {
    assert(out_.size() - at_ >= sizeof(T));
    for (std::size_t shift = 8 * sizeof(T); shift > 0; shift -= 8)
      out_[at_++] = static_cast<std::byte>(value >> (shift - 8));
    return *this;
  }

 private:
  MutableOctets out_;
  std::size_t at_ = 0;
};

// Requires: what is taken is there.
class Reader {
 public:
  explicit Reader(Octets in) : in_(in) {}
  template <std::unsigned_integral T>
  T take() {
    assert(in_.size() - at_ >= sizeof(T));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value = value << 8 | std::to_integer<std::uint64_t>(in_[at_++]);
    return static_cast<T>(value);
  }

 private:
  Octets in_;
  std::size_t at_ = 0;
};

}  // namespace ewarp::channel::wire
