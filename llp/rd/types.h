// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the parts of the reliable-datagram sublayer share: time, serial numbers, names and limits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ewarp::llp::rd {

// Nanoseconds of any clock that does not go back. It comes in as an argument, always.
using Time = std::uint64_t;
inline constexpr Time kMicrosecond = 1000, kMillisecond = 1000 * kMicrosecond, kSecond = 1000 * kMillisecond;
inline constexpr Time kNever = ~Time{0};

// PSNs and MSNs count modulo 2^32 (RFC 1982).
constexpr bool after(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b) > 0;
}

// Requests, and what answers them: a response never queues behind a request that the other end cannot take.
enum class Lane : std::uint8_t { req = 0, rsp = 1 };
inline constexpr std::size_t kLaneCount = 2;
constexpr std::size_t index(Lane lane) {
  return static_cast<std::size_t>(lane);
}

inline constexpr std::uint32_t kMaxWindow = 1024;  // segments of a lane: what the SACK words can say

// Where a datagram came from, or goes to.
struct Address {
  std::array<std::byte, 16> ip{};  // IPv4 as ::ffff:a.b.c.d
  std::uint16_t port = 0;
  std::uint32_t local = 0;  // which of our own addresses it came to, or leaves from: a number of the owner's
  bool operator==(const Address&) const = default;
};

// Who talks to whom. The port is not part of it: answers go to where the last valid datagram came from.
struct Key {
  std::array<std::byte, 16> ip{};
  std::uint32_t local_qpn = 0, remote_qpn = 0, qkey = 0;
  std::uint32_t local = 0;  // as in Address: each of our addresses has associations of its own
  bool operator==(const Key&) const = default;
};

// The defaults are the LAN profile.
struct Config {
  Time rto_init = 100 * kMillisecond, rto_min = 4 * kMillisecond, rto_max = 4 * kSecond;
  Time granularity = 0;  // G of RFC 6298: how coarse the caller's clock is
  Time ack_delay = kMillisecond;
  Time dead_time = 15 * kSecond;
  Time idle_close = 30 * kSecond;
  Time embryonic = 30 * kSecond;
  unsigned retry_max = 7;
  unsigned handshake_tries = 12;     // of OPEN and of CLOSE
  Time message_time = 30 * kSecond;  // an open message of the peer's that nothing has continued for so long
  std::uint32_t initial_segments = 10, initial_octets = 64 * 1024;
  std::uint32_t burst = 64 * 1024;  // octets sent at once; the rest is paced

  std::uint16_t window = 256;    // segments that we take out of order or ahead of receives, for each lane
  std::uint16_t max_seg = 1472;  // largest UDP payload we accept, and our path carries
  std::uint16_t ird = 16, ord = 16;
  bool credits = true, atomics = true;
  bool without_crc = false;    // wished; used if both ends wish it
  std::uint8_t rnr_code = 14;  // what we ask of a sender that finds no receive posted
  std::uint8_t rnr_retry = 7;  // 7: without end

  // Bounds of what peers can make us keep.
  std::size_t max_associations = 65536;
  std::size_t max_embryonic = 256;          // beyond, an OPEN has to prove its address first
  std::size_t max_held = 64 * 1024 * 1024;  // octets held out of order, all associations together
  unsigned resets_per_second = 10;          // to each source that has no association; at most 255
};

constexpr Config internet_profile() {
  Config c;
  c.rto_init = c.rto_min = kSecond;
  c.rto_max = 60 * kSecond;
  c.ack_delay = 25 * kMillisecond;
  c.dead_time = 100 * kSecond;
  c.message_time = 200 * kSecond;
  c.initial_octets = 14600;
  return c;
}

}  // namespace ewarp::llp::rd
