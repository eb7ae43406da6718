// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpa/framing.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "llp/guarded_copy.h"

namespace ewarp::mpa {
namespace {

constexpr std::uint16_t kPointerMask = 0xfffc;  // RFC 5044 section 4.3: the two low bits of FPDUPTR count as zero

// Octets between two markers.
constexpr std::size_t kMarkerRun = kMarkerSpacing - kMarkerSize;

constexpr std::size_t max_markers(std::size_t ulpdu) {
  return fpdu_octets(ulpdu) / kMarkerRun + 2;
}

std::size_t total_length(std::span<const llp::Extent> payload) {
  std::size_t n = 0;
  for (const llp::Extent& e : payload) n += e.length;
  return n;
}

void put_header(MutableOctets out, std::size_t ulpdu, Octets header) {
  put_be<std::uint16_t>(out, 0, static_cast<std::uint16_t>(ulpdu));
  if (!header.empty()) std::memcpy(out.data() + kLengthField, header.data(), header.size());
}

// What is copied or only read counts for the CRC, if there is one. False: a page of it is gone.
bool copy_out(MutableOctets to, const std::byte* from, llp::Crc32c* crc) {
  return crc != nullptr ? crc->copy(to.data(), from, to.size()) : llp::guarded_copy(to.data(), from, to.size());
}

bool read(const llp::Extent& e, llp::Crc32c* crc) {
  return crc == nullptr || crc->read(e.address, e.length);
}

// Writes the octets of one FPDU with a marker at each 512th octet of the stream.
class MarkedWriter {
 public:
  MarkedWriter(llp::Gather& out, bool crc, std::uint32_t phase) : out_(out), crc_on_(crc), phase_(phase) {
    // A marker between two FPDUs points nowhere and belongs to the one that follows (RFC 5044 section 4.3).
    if (phase_ == 0) put_marker(0);
  }

  void copy(Octets in) {
    while (!in.empty()) {
      const std::size_t n = run(in.size());
      const MutableOctets to = out_.append(n);
      std::memcpy(to.data(), in.data(), n);
      if (crc_on_) crc_.update(to);
      advance(n);
      in = in.subspan(n);
    }
  }

  // False: a page of it is gone.
  bool payload(const llp::Extent& extent, bool copied) {
    llp::Extent rest = extent;
    while (rest.length > 0) {
      llp::Extent piece = rest;
      piece.length = run(rest.length);
      llp::Crc32c* crc = crc_on_ ? &crc_ : nullptr;
      if (!copied) out_.append(piece);
      if (!(copied ? copy_out(out_.append(piece.length), piece.address, crc) : read(piece, crc))) return false;
      advance(piece.length);
      rest.address += piece.length;
      rest.length -= piece.length;
    }
    return true;
  }

  // The CRC field; a marker that is due stands before it and is covered.
  void finish() {
    (void)run(kCrcField);
    const MutableOctets field = out_.append(kCrcField);
    if (crc_on_) {
      crc_.emit(field.first<kCrcField>());
    } else {
      std::memset(field.data(), 0, kCrcField);
    }
    phase_ = (phase_ + kCrcField) % kMarkerSpacing;
    assert(phase_ % 4 == 0);  // so that a marker never splits a length or CRC field (RFC 5044 section 4.3)
  }

  std::uint32_t phase() const { return phase_; }

 private:
  // How much of n octets may be written before the next marker; writes one that is due now.
  std::size_t run(std::size_t n) {
    if (phase_ == 0) {
      put_marker(distance_);
      distance_ += kMarkerSize;
    }
    return std::min<std::size_t>(n, kMarkerSpacing - phase_);
  }

  void put_marker(std::size_t distance) {
    assert(phase_ == 0 && distance % 4 == 0);
    const MutableOctets marker = out_.append(kMarkerSize);
    put_be<std::uint16_t>(marker, 0, 0);
    put_be<std::uint16_t>(marker, 2, static_cast<std::uint16_t>(distance));
    if (crc_on_) crc_.update(marker);
    phase_ = kMarkerSize;
  }

  void advance(std::size_t written) {
    distance_ += written;
    phase_ = static_cast<std::uint32_t>((phase_ + written) % kMarkerSpacing);
  }

  llp::Gather& out_;
  llp::Crc32c crc_;
  bool crc_on_;
  std::uint32_t phase_;
  std::size_t distance_ = 0;  // from ULPDU_Length, markers counted
};

}  // namespace

std::size_t mulpdu(std::size_t emss, bool markers) {
  const std::size_t overhead =
      kLengthField + kCrcField + emss % 4 +
      (markers ? kMarkerSize * ((emss + kMarkerSpacing - 1) / kMarkerSpacing) : std::size_t{0});
  if (emss < overhead) return kMinMulpdu;
  return std::clamp(emss - overhead, kMinMulpdu, kMaxMulpdu);
}

std::size_t Framer::vectors_needed(std::size_t ulpdu, std::size_t pieces) const {
  const std::size_t plain = pieces + 2;
  // Each marker is a vector and cuts what it falls into in two.
  return markers_ ? plain + 2 * max_markers(ulpdu) : plain;
}

std::size_t Framer::arena_needed(std::size_t header, std::size_t ulpdu) const {
  const std::size_t plain = kLengthField + header + pad_octets(ulpdu) + kCrcField;
  return markers_ ? plain + kMarkerSize * max_markers(ulpdu) : plain;
}

bool Framer::frame(llp::Gather& out, Octets header, std::span<const llp::Extent> payload) {
  return frame(out, header, payload, Payload::in_place);
}

bool Framer::frame_copied(llp::Gather& out, Octets header, std::span<const llp::Extent> payload) {
  return frame(out, header, payload, Payload::copied);
}

bool Framer::frame(llp::Gather& out, Octets header, std::span<const llp::Extent> payload, Payload how) {
  const std::size_t ulpdu = header.size() + total_length(payload);
  assert(ulpdu >= kMinUlpdu && ulpdu <= 0xffff);
  const llp::Gather::Mark before = out.mark();
  const bool whole =
      markers_ ? frame_marked(out, header, payload, ulpdu, how) : frame_plain(out, header, payload, ulpdu, how);
  if (!whole) out.back_to(before);
  return whole;
}

bool Framer::frame_plain(llp::Gather& out, Octets header, std::span<const llp::Extent> payload, std::size_t ulpdu,
                         Payload how) {
  llp::Crc32c crc;
  const MutableOctets head = out.append(kLengthField + header.size());
  put_header(head, ulpdu, header);
  if (crc_) crc.update(head);
  for (const llp::Extent& e : payload) {
    llp::Crc32c* sum = crc_ ? &crc : nullptr;
    const bool good = how == Payload::copied ? copy_out(out.append(e.length), e.address, sum) : read(e, sum);
    if (!good) return false;
    if (how == Payload::in_place) out.append(e);
  }
  const std::size_t pad = pad_octets(ulpdu);
  const MutableOctets tail = out.append(pad + kCrcField);
  std::memset(tail.data(), 0, tail.size());
  if (!crc_) return true;
  crc.update(tail.first(pad));
  crc.emit(tail.subspan(pad).first<kCrcField>());
  return true;
}

bool Framer::frame_marked(llp::Gather& out, Octets header, std::span<const llp::Extent> payload, std::size_t ulpdu,
                          Payload how) {
  assert(ulpdu <= kMaxMulpdu);
  MarkedWriter writer(out, crc_, phase_);
  std::array<std::byte, kLengthField> length;
  put_header(length, ulpdu, {});
  writer.copy(length);
  writer.copy(header);
  for (const llp::Extent& e : payload)
    if (!writer.payload(e, how == Payload::copied)) return false;
  constexpr std::array<std::byte, 3> kZeros{};
  writer.copy(Octets(kZeros).first(pad_octets(ulpdu)));
  writer.finish();
  phase_ = writer.phase();
  return true;
}

Fault Deframer::fail(Fault fault) {
  assert(!failed_);
  failed_ = fault;
  return fault;
}

Result<std::optional<Deframer::Fpdu>> Deframer::next(Octets in) {
  if (failed_.has_value()) return *failed_;
  if (markers_) return next_marked(in);
  if (in.size() < kLengthField) return std::optional<Fpdu>{};
  const std::size_t ulpdu = get_be<std::uint16_t>(in, 0);
  if (ulpdu < kMinUlpdu) return fail(fault::kDdpLocalCatastrophic);
  const std::size_t total = fpdu_octets(ulpdu);
  if (in.size() < total) return std::optional<Fpdu>{};
  if (crc_) {
    llp::Crc32c crc;
    crc.update(in.first(total - kCrcField));
    if (!crc.matches(in.subspan(total - kCrcField).first<kCrcField>())) return fail(fault::kMpaCrc);
  }
  return std::optional<Fpdu>(Fpdu{in.subspan(kLengthField, ulpdu), total});
}

Result<std::optional<Deframer::Fpdu>> Deframer::next_marked(Octets in) {
  const std::size_t lead = phase_ == 0 ? kMarkerSize : 0;
  if (in.size() < lead + kLengthField) return std::optional<Fpdu>{};
  const Octets body = in.subspan(lead);  // from ULPDU_Length on
  const std::size_t ulpdu = get_be<std::uint16_t>(body, 0);
  if (ulpdu < kMinUlpdu) return fail(fault::kDdpLocalCatastrophic);

  // The first inner marker stands at `first_marker` of body, the others 512 octets apart, none behind the CRC's start.
  // FPDUs are multiples of 4, so a marker never splits the length field or the CRC (RFC 5044 section 4.3).
  const std::size_t first_marker = kMarkerSpacing - (phase_ + lead);
  const std::size_t covered = fpdu_octets(ulpdu) - kCrcField;  // length, ULPDU, PAD; without markers
  const std::size_t inner = covered < first_marker ? 0 : (covered - first_marker) / kMarkerRun + 1;
  const std::size_t total = lead + covered + inner * kMarkerSize + kCrcField;
  if (in.size() < total) return std::optional<Fpdu>{};

  if (crc_) {
    llp::Crc32c crc;
    crc.update(in.first(total - kCrcField));
    if (!crc.matches(in.subspan(total - kCrcField).first<kCrcField>())) return fail(fault::kMpaCrc);
  }
  if (lead != 0 && (get_be<std::uint16_t>(in, 2) & kPointerMask) != 0) return fail(fault::kMpaMarker);
  for (std::size_t i = 0, at = first_marker; i < inner; ++i, at += kMarkerSpacing) {
    // Modulo 2^16: the largest ULPDUs that a receiver has to take put their last marker past what FPDUPTR can say.
    const auto want = static_cast<std::uint16_t>(at);
    if ((get_be<std::uint16_t>(body, at + 2) & kPointerMask) != want) return fail(fault::kMpaMarker);
  }
  phase_ = static_cast<std::uint32_t>((phase_ + total) % kMarkerSpacing);
  const Octets clean = inner == 0 ? body.subspan(kLengthField, ulpdu) : strip(body, ulpdu, first_marker);
  return std::optional<Fpdu>(Fpdu{clean, total});
}

Octets Deframer::strip(Octets body, std::size_t ulpdu, std::size_t first_marker) {
  assert(ulpdu <= 0xffff && first_marker >= kLengthField);
  if (scratch_.size() < ulpdu) scratch_.resize(ulpdu);
  std::size_t from = kLengthField;
  std::size_t marker = first_marker;
  for (std::size_t done = 0; done < ulpdu;) {
    const std::size_t n = std::min(ulpdu - done, marker - from);
    if (n > 0) std::memcpy(scratch_.data() + done, body.data() + from, n);
    done += n;
    from = marker + kMarkerSize;
    marker += kMarkerSpacing;
  }
  return Octets(scratch_).first(ulpdu);
}

}  // namespace ewarp::mpa
