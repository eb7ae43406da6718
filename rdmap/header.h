// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// RDMAP headers (RFC 5040 section 4, RFC 7306 sections 4 to 6): octets <-> values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llp/fault.h"
#include "llp/octets.h"

namespace ewarp::rdmap {

enum class Opcode : std::uint8_t {
  write = 0,
  read_request = 1,
  read_response = 2,
  send = 3,
  send_invalidate = 4,
  send_se = 5,
  send_se_invalidate = 6,
  terminate = 7,
  immediate = 8,
  immediate_se = 9,
  atomic_request = 10,
  atomic_response = 11,
  send_immediate = 15,  // by consent only (docs/protocol/extensions.md section 5)
};

// What an opcode implies for its DDP segment: one table for both directions (RFC 5040 figure 4, RFC 7306 figure 3).
struct OpcodeTraits {
  const char* name;
  bool tagged;
  std::uint32_t qn;      // untagged only
  std::uint16_t header;  // octets of RDMAP header
  bool single_segment;   // L = 1 and MO = 0 always
  bool extension;        // needs RFC 7306 or consent
};
// nullptr: unassigned opcode.
const OpcodeTraits* traits(std::uint8_t opcode);

// RsvdULP[0:7] (RFC 5040 figure 3): RV in the two top bits, opcode in the low four.
inline constexpr std::uint8_t kRdmapVersion = 1;
constexpr std::uint8_t control(Opcode op) {
  return static_cast<std::uint8_t>(kRdmapVersion << 6 | static_cast<std::uint8_t>(op));
}
constexpr std::uint8_t version_of(std::uint8_t control) {
  return static_cast<std::uint8_t>(control >> 6);
}
constexpr std::uint8_t opcode_of(std::uint8_t control) {
  return control & 0x0f;
}

// Send with Immediate alone: one of the two reserved bits says "solicited event" (docs/protocol/extensions.md section
// 5).
inline constexpr std::uint8_t kSolicited = 0x10;

struct ReadRequest {
  static constexpr std::size_t kSize = 28;
  std::uint32_t sink_stag = 0;
  std::uint64_t sink_to = 0;
  std::uint32_t length = 0;  // RDMARDSZ, octets
  std::uint32_t source_stag = 0;
  std::uint64_t source_to = 0;
  // Fault 0/2/FF when in.size() != kSize.
  static Result<ReadRequest> parse(Octets in);
  void emit(std::span<std::byte, kSize> out) const;
  bool operator==(const ReadRequest&) const = default;
};

// RFC 5040 section 4.8. The octets of the offending headers are carried as received.
struct Terminate {
  Fault fault{};
  bool length_valid = false;            // M
  std::uint16_t segment_length = 0;     // ULPDU octets of the offending segment
  std::vector<std::byte> ddp_header;    // D: 14 or 18 octets, else empty
  std::vector<std::byte> rdmap_header;  // R: 28 octets (Read Request), else empty
  bool swapped = false;                 // arrived in the form that Linux siw sends (docs/design/rdmap.md, Choices)

  // Accepts the RFC's form and siw's swapped one. Fails (0/2/FF) on a message too short for what it announces.
  static Result<Terminate> parse(Octets in);
  std::vector<std::byte> emit() const;  // always the RFC's form; 4..52 octets
  bool operator==(const Terminate&) const = default;
};

// RFC 7306 section 6: 8 octets. Verbs has 4; they come first, the others are sent as zero and ignored.
struct ImmediateData {
  static constexpr std::size_t kSize = 8;
  std::uint32_t data = 0;
  static Result<ImmediateData> parse(Octets in);
  void emit(std::span<std::byte, kSize> out) const;
  bool operator==(const ImmediateData&) const = default;
};

inline constexpr std::size_t kAtomicOctets = 8;  // what an atomic works on

struct AtomicRequest {
  static constexpr std::size_t kSize = 52;
  enum class Op : std::uint8_t { fetch_add = 0, compare_swap = 2 };
  std::uint8_t op = 0;  // AOpCode, low 4 bits of the first word
  std::uint32_t request_id = 0;
  std::uint32_t stag = 0;
  std::uint64_t to = 0;
  std::uint64_t data = 0, data_mask = 0, compare = 0, compare_mask = 0;
  bool is(Op which) const { return op == static_cast<std::uint8_t>(which); }
  static Result<AtomicRequest> parse(Octets in);
  void emit(std::span<std::byte, kSize> out) const;
  bool operator==(const AtomicRequest&) const = default;
};

struct AtomicResponse {
  static constexpr std::size_t kSize = 12;
  std::uint32_t request_id = 0;
  std::uint64_t original = 0;
  static Result<AtomicResponse> parse(Octets in);
  void emit(std::span<std::byte, kSize> out) const;
  bool operator==(const AtomicResponse&) const = default;
};

// Results of the masked atomics (RFC 7306 section 5.1): the new value of `memory`.
std::uint64_t fetch_add(std::uint64_t memory, std::uint64_t addend, std::uint64_t field_mask);
std::uint64_t compare_swap(std::uint64_t memory, std::uint64_t swap, std::uint64_t swap_mask, std::uint64_t compare,
                           std::uint64_t compare_mask);

std::string to_string(const Fault&);  // "1/2/05 message too long for available buffer"
std::string to_string(const ReadRequest&);
std::string to_string(const Terminate&);

}  // namespace ewarp::rdmap
