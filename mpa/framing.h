// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// FPDUs: framing and deframing of ULPDUs on an ordered octet stream (RFC 5044 sections 4 and 5).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "llp/crc32c.h"
#include "llp/fault.h"
#include "llp/gather.h"
#include "llp/octets.h"

namespace ewarp::mpa {

inline constexpr std::size_t kLengthField = 2;
inline constexpr std::size_t kCrcField = 4;
inline constexpr std::size_t kMarkerSpacing = 512;
inline constexpr std::size_t kMarkerSize = 4;
inline constexpr std::size_t kMinUlpdu = 14;  // a tagged segment without payload
inline constexpr std::size_t kMaxMulpdu = 64768;
inline constexpr std::size_t kMinMulpdu = 128;

constexpr std::size_t pad_octets(std::size_t ulpdu) {
  return (4 - (kLengthField + ulpdu) % 4) % 4;
}
// Octets of the FPDU without markers.
constexpr std::size_t fpdu_octets(std::size_t ulpdu) {
  return kLengthField + ulpdu + pad_octets(ulpdu) + kCrcField;
}
// Largest ULPDU for a TCP segment of emss octets (RFC 5044 section 4.5), never below kMinMulpdu nor above kMaxMulpdu.
// Except where clamped, the result is 2 modulo 4, so that full segments need no PAD.
std::size_t mulpdu(std::size_t emss, bool markers);

// Turns ULPDUs into FPDUs. One per half connection; remembers the marker phase.
class Framer {
 public:
  Framer(bool crc, bool markers) : crc_(crc), markers_(markers) {}

  // Vectors and arena octets that frame() may use for a ULPDU of this many octets in so many payload pieces: upper
  // bounds whatever the marker phase.
  std::size_t vectors_needed(std::size_t ulpdu, std::size_t pieces) const;
  std::size_t arena_needed(std::size_t header, std::size_t ulpdu) const;

  // Appends one FPDU: header (copied), then the payload pieces (gathered in place; the CRC, if on, is computed over
  // them here, so they must not change until written, and with CRC on the caller has entered their regions). False: the
  // CRC met a page that is gone, and nothing was appended.
  // An FPDU without payload pieces lies in the arena whole. Requires: room as told above; total ULPDU 14..65535 octets
  // (14..kMaxMulpdu with markers: FPDUPTR has 16 bits).
  bool frame(llp::Gather& out, Octets header, std::span<const llp::Extent> payload);
  // The same with the payload copied, in the pass that computes the CRC: afterwards it may change. The caller has
  // entered its regions in any case. False also where there is no CRC.
  // Requires: room for a header of this length.
  bool frame_copied(llp::Gather& out, Octets header, std::span<const llp::Extent> payload);

  bool crc() const { return crc_; }
  bool markers() const { return markers_; }

 private:
  enum class Payload : std::uint8_t { in_place, copied };
  bool frame(llp::Gather& out, Octets header, std::span<const llp::Extent> payload, Payload how);
  bool frame_plain(llp::Gather& out, Octets header, std::span<const llp::Extent> payload, std::size_t ulpdu,
                   Payload how);
  bool frame_marked(llp::Gather& out, Octets header, std::span<const llp::Extent> payload, std::size_t ulpdu,
                    Payload how);

  bool crc_;
  bool markers_;
  std::uint32_t phase_ = 0;  // octets since the last marker position, modulo 512; 0: a marker is due
};

// Finds FPDUs in a contiguous run of received octets.
class Deframer {
 public:
  Deframer(bool crc, bool markers) : crc_(crc), markers_(markers) {}

  struct Fpdu {
    Octets ulpdu;          // without markers; lives until the next call
    std::size_t consumed;  // octets of the stream that the FPDU took
  };
  // in begins where the last FPDU ended. Nothing: more octets are needed (never a copy of them is kept; the call may be
  // repeated with more). A Fault ends this half: 2/0/2 CRC, 2/0/3 marker, 1/0/0 runt length; every later call returns
  // the same one (RFC 5044 section 8: nothing is passed up after an error). Without markers nothing allocates; with
  // markers the first ULPDU that has one inside does.
  Result<std::optional<Fpdu>> next(Octets in);

  bool crc() const { return crc_; }
  bool markers() const { return markers_; }

 private:
  Result<std::optional<Fpdu>> next_marked(Octets in);
  Fault fail(Fault fault);
  Octets strip(Octets body, std::size_t ulpdu, std::size_t first_marker);

  bool crc_;
  bool markers_;
  std::uint32_t phase_ = 0;  // as the Framer's, of the octet that `in` begins with
  std::optional<Fault> failed_;
  std::vector<std::byte> scratch_;  // a ULPDU freed of its markers
};

}  // namespace ewarp::mpa
