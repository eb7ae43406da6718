// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Datagrams of the reliable service, types 8 to 14 (docs/protocol/reliable-datagrams.md section 2): octets <-> values.
// No state, no allocation.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>

#include "llp/fault.h"
#include "llp/octets.h"
#include "llp/rd/types.h"

namespace ewarp::llp::rd {

enum class Type : std::uint8_t { req = 8, rsp = 9, ack = 10, open = 11, openack = 12, close = 13, reset = 14 };

namespace flag {
inline constexpr std::uint8_t kImmediate = 0x80, kNoCrc = 0x40, kAckNow = 0x20, kCongestion = 0x10, kAgain = 0x08,
                              kError = 0x04, kRnr = 0x02;
// The last bit means something else in each type that has it.
inline constexpr std::uint8_t kChallenge = 0x01, kReflected = 0x01, kAcknowledgement = 0x01;
}  // namespace flag

namespace option {
inline constexpr std::uint16_t kCredits = 0x8000, kAtomics = 0x4000, kNoCrc = 0x2000;
}

enum class ResetReason : std::uint8_t {
  unspecified = 0,
  unknown = 1,
  no_qp = 2,
  qkey = 3,
  resources = 4,
  version = 5,
  violation = 6,
  qp_gone = 7,
  administrative = 8,
};

inline constexpr std::uint8_t kVersion = 1;
inline constexpr std::size_t kPrefix = 12, kCrcField = 4, kLengthField = 2;
inline constexpr std::size_t kFixed = 36;             // header of RD_REQ and RD_RSP
inline constexpr std::size_t kMaxUdpPayload = 65507;  // of IPv4; kept for IPv6 too
inline constexpr std::size_t kSackWords = kMaxWindow / 32;
inline constexpr std::size_t kMaxHeader = 40 + 2 * 4 * kSackWords;  // the largest: RD_ACK
// What MaxSeg loses to headers around a DDP segment: MULPDU = MaxSeg - this, less 4 with an immediate.
inline constexpr std::size_t kOverhead = kFixed + kLengthField + kCrcField;

struct Prefix {
  Type type = Type::ack;
  std::uint8_t flags = 0;
  std::uint8_t aux = 0;
  std::uint32_t destination = 0, source = 0;  // QPNs, 24 bits
  bool operator==(const Prefix&) const = default;
};

// Where an end stands: in every RD_REQ, RD_RSP and RD_ACK.
struct Standing {
  std::uint32_t tag = 0;                        // chosen by the receiver
  std::uint32_t psn = 0;                        // of this segment in its lane; 0 in RD_ACK
  std::array<std::uint32_t, kLaneCount> ack{};  // next PSN expected
  std::array<std::uint16_t, kLaneCount> window{};
  std::uint32_t msn_limit = 0;  // highest queue-0 MSN the peer may send
  bool operator==(const Standing&) const = default;
};

struct Data {
  Standing standing;
  std::optional<std::uint32_t> error_psn, immediate;
  Octets segment;  // parsed: in the datagram
};

// A lane's SACK words as received: bit k says that PSN ack + 1 + k has arrived.
class SackView {
 public:
  SackView() = default;
  explicit SackView(Octets words) : words_(words) {}
  std::size_t bits() const { return words_.size() * 8; }
  bool test(std::size_t k) const { return (std::to_integer<unsigned>(words_[k / 8]) & (0x80u >> k % 8)) != 0; }

 private:
  Octets words_;
};

// The same to be sent; trailing words without a bit are not sent.
struct SackWords {
  std::array<std::uint32_t, kSackWords> word{};
  std::uint8_t count = 0;
  // Requires: k < kMaxWindow.
  void set(std::size_t k) {
    assert(k < kMaxWindow);
    word[k / 32] |= 0x80000000u >> k % 32;
    if (k / 32 >= count) count = static_cast<std::uint8_t>(k / 32 + 1);
  }
};

struct Ack {
  Standing standing;
  std::uint16_t delay_us = 0;
  std::array<SackView, kLaneCount> sack;
};

struct Open {
  std::uint32_t destination_tag = 0;  // OPENACK only
  std::uint32_t initial_tag = 0;
  std::uint32_t qkey = 0;
  std::array<std::uint32_t, kLaneCount> isn{};
  std::array<std::uint16_t, kLaneCount> window{};
  std::uint32_t msn_limit = 0;
  std::uint16_t max_seg = 0, options = 0, ird = 0, ord = 0;
  std::uint64_t cookie = 0;
  bool operator==(const Open&) const = default;
};

struct Close {
  std::uint32_t tag = 0;
  std::array<std::uint32_t, kLaneCount> next{}, ack{};
  std::uint8_t reason = 0;
  bool operator==(const Close&) const = default;
};

struct Reset {
  std::uint32_t tag = 0;
  ResetReason reason = ResetReason::unspecified;
  bool operator==(const Reset&) const = default;
};

struct Datagram {
  Prefix prefix;
  std::variant<Data, Ack, Open, Close, Reset> body;
};

// Why a datagram is not one, in the order of the checks.
enum class Drop : std::uint8_t { runt, version, type, length, crc };

// in: one UDP payload. Its CRC is checked; a datagram without one (flag N) is taken only with accept_without_crc.
Result<Datagram, Drop> parse(Octets in, bool accept_without_crc);

// An OPEN of another version, if its CRC is where ours is: what a RESET about its version needs.
struct ForeignOpen {
  std::uint32_t destination, source, initial_tag;
};
std::optional<ForeignOpen> foreign_open(Octets in);

// Write everything up to the segment, or to the CRC where there is none; return how many octets that is.
// Requires: out.size() >= kMaxHeader. data.segment is not looked at: `segment` octets will follow.
std::size_t emit(const Prefix& prefix, const Data& data, std::size_t segment, MutableOctets out);
std::size_t emit(const Prefix& prefix, const Standing& standing, std::uint16_t delay_us,
                 const std::array<SackWords, kLaneCount>& sack, MutableOctets out);
std::size_t emit(const Prefix& prefix, const Open& open, MutableOctets out);
std::size_t emit(const Prefix& prefix, const Close& close, MutableOctets out);
std::size_t emit(const Prefix& prefix, const Reset& reset, MutableOctets out);

}  // namespace ewarp::llp::rd
