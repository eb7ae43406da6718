// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Datagram iWARP on the wire: what a UDP payload begins with, and the headers of UD and SIDR
// (docs/protocol/datagrams.md). Those of RD are llp/rd/header.h's. A header is HLen words; a segment is octets that
// this layer does not look into.
//
//   header (HLen * 4) | [ SegLen (16) | segment ] | CRC32C (4)
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "llp/fault.h"
#include "llp/octets.h"

namespace ewarp::llp {

inline constexpr std::uint8_t kDatagramVersion = 1;
inline constexpr std::size_t kMaxDatagram = 65507;   // octets of UDP payload (IPv4; used for IPv6 too)
inline constexpr std::size_t kMaxUdMessage = 65463;  // octets, with or without immediate data
inline constexpr std::uint32_t kMulticastQpn = 0xffffff;
inline constexpr std::uint16_t kMulticastPort = 65535;

// Bit 3 set: RD.
enum class DatagramType : std::uint8_t {
  ud_send = 0,
  ud_error = 1,
  ud_write_record = 2,
  sidr_request = 3,
  sidr_reply = 4,
  rd_request = 8,
  rd_response = 9,
  rd_ack = 10,
  rd_open = 11,
  rd_open_ack = 12,
  rd_close = 13,
  rd_reset = 14,
};

inline constexpr std::uint8_t kFlagImmediate = 0x80;    // I: immediate word present
inline constexpr std::uint8_t kFlagNoCrc = 0x40;        // N
inline constexpr std::uint8_t kFlagErrorReport = 0x04;  // F: ErrPSN word present

// Why a datagram is not for anybody, in the order of the checks (docs/protocol/datagrams.md section 4).
enum class DatagramDrop : std::uint8_t {
  address,  // the queue pair's device does not have the address that it went to
  too_short,
  version,
  type,    // unassigned
  length,  // HLen below the type's, or lengths that contradict each other
  crc,
  qp,          // no such QP, or one that does not receive
  wrong_type,  // for this kind of QP
  qkey,
  segment,  // not the DDP segment that belongs here
  opcode,
  no_receive,
  too_long,  // for the receive
};
inline constexpr std::size_t kDatagramDrops = 13;
const char* to_string(DatagramDrop why);

// The first 12 octets of every datagram.
struct DatagramPrefix {
  static constexpr std::size_t kSize = 12;
  DatagramType type{};
  std::uint8_t flags = 0;
  std::uint8_t words = 0;  // HLen
  std::uint8_t aux = 0;
  std::uint32_t destination = 0, source = 0;  // QPNs, 24 bits
  void emit(std::span<std::byte, kSize> out) const;
  bool operator==(const DatagramPrefix&) const = default;
};

// The QPN that it claims to be for, whatever its type; 0 if it is too short to say.
std::uint32_t destination_of(Octets payload);

// Whether it claims to be one of RD's, whose header says more: llp/rd/header.h.
inline bool is_reliable(Octets payload) {
  return !payload.empty() && (std::to_integer<unsigned>(payload[0]) & 0x08) != 0;
}

// A datagram that passed the checks up to and including its CRC. Refers to the octets it was parsed from.
struct Datagram {
  DatagramPrefix prefix;
  Octets header;   // HLen words, the prefix included; no shorter than the type and its flags demand
  Octets segment;  // empty for a type that carries none
};

// without_crc: flag N is accepted.
Result<Datagram, DatagramDrop> parse_datagram(Octets payload, bool without_crc);

inline constexpr std::size_t kSegmentLength = 2;  // SegLen
inline constexpr std::size_t kDatagramCrc = 4;

// Puts SegLen and the segment (not for a type that carries none) and the CRC behind a header. Returns the octets in
// all. Requires: room for them; flag N is in the header if crc is false.
std::size_t finish_datagram(MutableOctets out, std::size_t header, std::optional<Octets> segment, bool crc = true);

// Each writes its header with the prefix, and returns its octets. Flags I and N are the caller's to give.

struct UdSend {
  static constexpr std::size_t kMaxHeader = 20;
  std::uint32_t qkey = 0;
  std::optional<std::uint32_t> immediate;
  static UdSend parse(const Datagram& datagram);  // requires: type ud_send
  std::size_t emit(MutableOctets out, std::uint32_t destination, std::uint32_t source, bool crc = true) const;
  bool operator==(const UdSend&) const = default;
};

struct UdError {
  static constexpr std::size_t kHeader = 20;
  std::uint32_t msn = 0;  // of the datagram in error
  static UdError parse(const Datagram& datagram);
  std::size_t emit(MutableOctets out, std::uint32_t destination, std::uint32_t source) const;
  bool operator==(const UdError&) const = default;
};

struct SidrRequest {
  static constexpr std::size_t kHeader = 20;
  // Octets of a datagram so long that the longest reply is no more than three times as long (docs/protocol/datagrams.md
  // section 9). Extension words fill it up.
  static constexpr std::size_t kLeastDatagram = 96;
  std::uint32_t transaction = 0;
  std::uint16_t service_port = 0;
  // Extension words for a datagram of kLeastDatagram octets with so much private data.
  static std::size_t padding(std::size_t private_data);
  static SidrRequest parse(const Datagram& datagram);
  // extension: words of zero behind the known fields.
  std::size_t emit(MutableOctets out, std::uint32_t source, std::size_t extension = 0) const;
  bool operator==(const SidrRequest&) const = default;
};

enum class SidrStatus : std::uint8_t { success = 0, rejected = 1, no_service = 2, version = 3 };

struct SidrReply {
  static constexpr std::size_t kHeader = 24;
  std::uint32_t transaction = 0;
  std::uint8_t status = 0;  // SidrStatus
  std::uint32_t qpn = 0, qkey = 0;
  static SidrReply parse(const Datagram& datagram);
  std::size_t emit(MutableOctets out, std::uint32_t destination, std::uint32_t source) const;
  bool operator==(const SidrReply&) const = default;
};

}  // namespace ewarp::llp
