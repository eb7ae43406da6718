// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What two endpoints tell each other in the private data of rdma_cm (56 octets at most).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "mpi_shim/channel/core/wire.h"
#include "mpi_shim/channel/verbs/address.h"

namespace ewarp::channel {

using HelloOctets = std::array<std::byte, 56>;

struct Hello {
  // Of everything that two channels say to each other: this, control messages, immediates. Where it differs nothing but
  // version and answer is read.
  static constexpr std::uint8_t kVersion = 7;
  enum class Answer : std::uint8_t {
    welcome = 0,
    crossed = 1,   // refused: my own request to you goes on
    mismatch = 2,  // refused: eager_threshold, eager_piece, receive_depth or ignored_bits differ
    known = 3,     // refused: a connection with you is there
    stranger = 4,  // refused: not of this job, or not from the address that it claims
    version = 5,   // refused: this end speaks another version
    busy = 6,      // refused for now: too many that nobody knows are about to connect
  };
  std::uint8_t version = kVersion;
  Address address;  // where the sender listens: its name
  std::uint32_t eager_threshold = 0, eager_piece = 0, receive_depth = 0;
  wire::Remote heartbeat;  // 8 octets that may be read
  Tag ignored_bits = 0;
  Answer answer = Answer::welcome;
  std::uint64_t proof = 0;  // that the sender knows the job's secret: JobSecret::proof()

  HelloOctets emit() const;
  // Nothing if that is no hello.
  static std::optional<Hello> parse(const void* data, std::size_t octets);
};

// What the processes of one job have in common, and strangers do not know. Two jobs, or a job and none, do not connect.
class JobSecret {
 public:
  // Empty: no secret. It should have 128 random bits; it is not kept.
  explicit JobSecret(const std::string& text);
  // For a hello from one address to another, so that it is of no use elsewhere. 0 without a secret. Who can read the
  // network can repeat it.
  std::uint64_t proof(const Address& from, const Address& to) const;

 private:
  bool none_;
  std::array<std::uint64_t, 2> key_{};
};

}  // namespace ewarp::channel
