// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What two endpoints tell each other in the private data of rdma_cm (56 octets at most).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "mpi_shim/channel/core/wire.h"
#include "mpi_shim/channel/verbs/address.h"

namespace ewarp::channel {

using HelloOctets = std::array<std::byte, 52>;

struct Hello {
  enum class Answer : std::uint8_t {
    welcome = 0,
    crossed = 1,   // refused: my own request to you goes on
    mismatch = 2,  // refused: eager_threshold, receive_depth or ignored_bits differ
    known = 3,     // refused: a connection with you is there
  };
  Address address;  // where the sender listens: its name
  std::uint32_t eager_threshold = 0, receive_depth = 0;
  wire::Remote heartbeat;  // 8 octets that may be read
  Tag ignored_bits = 0;
  Answer answer = Answer::welcome;

  HelloOctets emit() const;
  // Nothing if that is no hello of this version.
  static std::optional<Hello> parse(const void* data, std::size_t octets);
};

}  // namespace ewarp::channel
