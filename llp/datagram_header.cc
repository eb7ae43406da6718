// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/datagram_header.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "llp/crc32c.h"

namespace ewarp::llp {
namespace {

constexpr std::size_t kShortest = 20;
constexpr std::uint32_t kQpnMask = 0xffffff;

// What a type implies, by its number (docs/protocol/datagrams.md section 3.3).
struct TypeTraits {
  std::uint8_t words = 0;  // base HLen; 0: unassigned
  bool segment = false;
};
constexpr std::array<TypeTraits, 16> kTypes = {{
    {4, true},    // UD_SEND
    {5, true},    // UD_ERR
    {7, true},    // UD_WREC
    {5, true},    // SIDR_REQ
    {6, true},    // SIDR_REP
    {},           // 5
    {},           // 6
    {},           // 7
    {9, true},    // RD_REQ
    {9, true},    // RD_RSP
    {10, false},  // RD_ACK
    {14, false},  // RD_OPEN
    {14, false},  // RD_OPENACK
    {9, false},   // RD_CLOSE
    {5, false},   // RD_RESET
    {},           // 15
}};

// Flags I and F each announce a word behind the fixed header, of the types that know them.
std::size_t optional_words(DatagramType type, std::uint8_t flags) {
  const bool lane = type == DatagramType::rd_request || type == DatagramType::rd_response;
  const bool immediate = lane || type == DatagramType::ud_send || type == DatagramType::ud_write_record;
  return (immediate && (flags & kFlagImmediate) != 0 ? 1U : 0U) + (lane && (flags & kFlagErrorReport) != 0 ? 1U : 0U);
}

DatagramPrefix prefix(DatagramType type, std::size_t header, std::uint32_t destination, std::uint32_t source,
                      std::uint8_t flags = 0) {
  return {type, flags, static_cast<std::uint8_t>(header / 4), 0, destination, source};
}

void put_prefix(MutableOctets out, const DatagramPrefix& p) {
  p.emit(out.first<DatagramPrefix::kSize>());
}

}  // namespace

const char* to_string(DatagramDrop why) {
  switch (why) {
    case DatagramDrop::address:
      return "address of another device";
    case DatagramDrop::too_short:
      return "too short";
    case DatagramDrop::version:
      return "version";
    case DatagramDrop::type:
      return "unassigned type";
    case DatagramDrop::length:
      return "lengths";
    case DatagramDrop::crc:
      return "CRC";
    case DatagramDrop::qp:
      return "no such QP";
    case DatagramDrop::wrong_type:
      return "type does not fit the QP";
    case DatagramDrop::qkey:
      return "Q_Key";
    case DatagramDrop::segment:
      return "DDP segment";
    case DatagramDrop::opcode:
      return "opcode";
    case DatagramDrop::no_receive:
      return "no receive posted";
    case DatagramDrop::too_long:
      return "too long for the receive";
  }
  return "?";
}

void DatagramPrefix::emit(std::span<std::byte, kSize> out) const {
  put_be<std::uint8_t>(out, 0, static_cast<std::uint8_t>(kDatagramVersion << 4 | static_cast<std::uint8_t>(type)));
  put_be<std::uint8_t>(out, 1, flags);
  put_be<std::uint8_t>(out, 2, words);
  put_be<std::uint8_t>(out, 3, aux);
  put_be<std::uint32_t>(out, 4, destination & kQpnMask);
  put_be<std::uint32_t>(out, 8, source & kQpnMask);
}

std::uint32_t destination_of(Octets payload) {
  return payload.size() < DatagramPrefix::kSize ? 0 : get_be<std::uint32_t>(payload, 4) & kQpnMask;
}

Result<Datagram, DatagramDrop> parse_datagram(Octets payload, bool without_crc) {
  if (payload.size() < kShortest) return DatagramDrop::too_short;
  const auto first = get_be<std::uint8_t>(payload, 0);
  if (first >> 4 != kDatagramVersion) return DatagramDrop::version;
  const std::uint8_t type = first & 0x0f;
  const TypeTraits& traits = kTypes[type];
  if (traits.words == 0) return DatagramDrop::type;
  Datagram d;
  d.prefix = {static_cast<DatagramType>(type),
              get_be<std::uint8_t>(payload, 1),
              get_be<std::uint8_t>(payload, 2),
              get_be<std::uint8_t>(payload, 3),
              get_be<std::uint32_t>(payload, 4) & kQpnMask,
              get_be<std::uint32_t>(payload, 8) & kQpnMask};
  const std::size_t header = std::size_t{d.prefix.words} * 4;
  const std::size_t ahead = header + (traits.segment ? kSegmentLength : 0) + kDatagramCrc;
  if (d.prefix.words < traits.words + optional_words(d.prefix.type, d.prefix.flags) || ahead > payload.size())
    return DatagramDrop::length;
  const std::size_t segment = traits.segment ? get_be<std::uint16_t>(payload, header) : 0;
  if (ahead + segment != payload.size()) return DatagramDrop::length;
  const std::size_t covered = payload.size() - kDatagramCrc;
  if ((d.prefix.flags & kFlagNoCrc) != 0) {
    if (!without_crc) return DatagramDrop::crc;
  } else {
    Crc32c crc;
    crc.update(payload.first(covered));
    if (!crc.matches(payload.subspan(covered).first<kDatagramCrc>())) return DatagramDrop::crc;
  }
  d.header = payload.first(header);
  d.segment = payload.subspan(covered - segment, segment);
  return d;
}

std::size_t finish_datagram(MutableOctets out, std::size_t header, std::optional<Octets> segment, bool crc) {
  assert(out.size() >= header + (segment ? kSegmentLength + segment->size() : 0) + kDatagramCrc);
  assert(crc || (get_be<std::uint8_t>(out, 1) & kFlagNoCrc) != 0);
  std::size_t end = header;
  if (segment) {
    put_be<std::uint16_t>(out, end, static_cast<std::uint16_t>(segment->size()));
    std::copy(segment->begin(), segment->end(), out.begin() + static_cast<std::ptrdiff_t>(end + kSegmentLength));
    end += kSegmentLength + segment->size();
  }
  const auto field = out.subspan(end).first<kDatagramCrc>();
  if (crc) {
    Crc32c sum;
    sum.update(out.first(end));
    sum.emit(field);
  } else {
    put_be<std::uint32_t>(field, 0, 0);
  }
  return end + kDatagramCrc;
}

UdSend UdSend::parse(const Datagram& d) {
  assert(d.prefix.type == DatagramType::ud_send);
  UdSend h;
  h.qkey = get_be<std::uint32_t>(d.header, 12);
  if ((d.prefix.flags & kFlagImmediate) != 0) h.immediate = get_be<std::uint32_t>(d.header, 16);
  return h;
}

std::size_t UdSend::emit(MutableOctets out, std::uint32_t destination, std::uint32_t source, bool crc) const {
  const std::size_t size = immediate ? kMaxHeader : kMaxHeader - 4;
  const auto flags = static_cast<std::uint8_t>((immediate ? kFlagImmediate : 0) | (crc ? 0 : kFlagNoCrc));
  put_prefix(out, prefix(DatagramType::ud_send, size, destination, source, flags));
  put_be<std::uint32_t>(out, 12, qkey);
  if (immediate) put_be<std::uint32_t>(out, 16, *immediate);
  return size;
}

UdError UdError::parse(const Datagram& d) {
  assert(d.prefix.type == DatagramType::ud_error);
  return {get_be<std::uint32_t>(d.header, 16)};
}

std::size_t UdError::emit(MutableOctets out, std::uint32_t destination, std::uint32_t source) const {
  put_prefix(out, prefix(DatagramType::ud_error, kHeader, destination, source));
  put_be<std::uint32_t>(out, 12, 0);
  put_be<std::uint32_t>(out, 16, msn);
  return kHeader;
}

SidrRequest SidrRequest::parse(const Datagram& d) {
  assert(d.prefix.type == DatagramType::sidr_request);
  return {get_be<std::uint32_t>(d.header, 12), get_be<std::uint16_t>(d.header, 16)};
}

std::size_t SidrRequest::padding(std::size_t private_data) {
  const std::size_t octets = kHeader + kSegmentLength + private_data + kDatagramCrc;
  return octets >= kLeastDatagram ? 0 : (kLeastDatagram - octets + 3) / 4;
}

std::size_t SidrRequest::emit(MutableOctets out, std::uint32_t source, std::size_t extension) const {
  const std::size_t header = kHeader + 4 * extension;
  put_prefix(out, prefix(DatagramType::sidr_request, header, 0, source));
  put_be<std::uint32_t>(out, 12, transaction);
  put_be<std::uint16_t>(out, 16, service_port);
  put_be<std::uint16_t>(out, 18, 0);
  std::fill_n(out.begin() + kHeader, 4 * extension, std::byte{0});
  return header;
}

SidrReply SidrReply::parse(const Datagram& d) {
  assert(d.prefix.type == DatagramType::sidr_reply);
  const auto word = get_be<std::uint32_t>(d.header, 16);
  return {get_be<std::uint32_t>(d.header, 12), static_cast<std::uint8_t>(word >> 24), word & kQpnMask,
          get_be<std::uint32_t>(d.header, 20)};
}

std::size_t SidrReply::emit(MutableOctets out, std::uint32_t destination, std::uint32_t source) const {
  put_prefix(out, prefix(DatagramType::sidr_reply, kHeader, destination, source));
  put_be<std::uint32_t>(out, 12, transaction);
  put_be<std::uint32_t>(out, 16, std::uint32_t{status} << 24 | (qpn & kQpnMask));
  put_be<std::uint32_t>(out, 20, qkey);
  return kHeader;
}

}  // namespace ewarp::llp
