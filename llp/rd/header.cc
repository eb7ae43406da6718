// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/rd/header.h"

#include <cassert>

#include "llp/crc32c.h"

namespace ewarp::llp::rd {
namespace {

constexpr std::uint32_t kQpnMask = 0xffffff;
constexpr std::size_t kMinDatagram = 20;
constexpr std::uint8_t kBaseWords[] = {9, 9, 10, 14, 14, 9, 5};  // HLen of types 8 to 14

bool has_segment(Type type) {
  return type == Type::req || type == Type::rsp;
}

// Words of the header that this datagram's own fields say it must have.
std::size_t known_words(Type type, std::uint8_t flags, Octets in) {
  std::size_t words = kBaseWords[static_cast<std::size_t>(type) - 8];
  if (has_segment(type)) words += ((flags & flag::kError) != 0) + ((flags & flag::kImmediate) != 0);
  if (type == Type::ack && in.size() >= 40)
    words += get_be<std::uint8_t>(in, 36) + std::size_t{get_be<std::uint8_t>(in, 37)};
  return words;
}

Standing parse_standing(Octets in) {
  Standing s;
  s.tag = get_be<std::uint32_t>(in, 12);
  s.psn = get_be<std::uint32_t>(in, 16);
  s.ack = {get_be<std::uint32_t>(in, 20), get_be<std::uint32_t>(in, 24)};
  s.window = {get_be<std::uint16_t>(in, 28), get_be<std::uint16_t>(in, 30)};
  s.msn_limit = get_be<std::uint32_t>(in, 32);
  return s;
}

Data parse_data(Octets in, std::uint8_t flags, std::size_t header) {
  Data d;
  d.standing = parse_standing(in);
  std::size_t at = kFixed;
  if (flags & flag::kError) d.error_psn = get_be<std::uint32_t>(in, std::exchange(at, at + 4));
  if (flags & flag::kImmediate) d.immediate = get_be<std::uint32_t>(in, at);
  d.segment = in.subspan(header + kLengthField, in.size() - header - kLengthField - kCrcField);
  return d;
}

Ack parse_ack(Octets in) {
  Ack a;
  a.standing = parse_standing(in);
  const std::size_t requests = get_be<std::uint8_t>(in, 36), responses = get_be<std::uint8_t>(in, 37);
  a.delay_us = get_be<std::uint16_t>(in, 38);
  a.sack = {SackView(in.subspan(40, 4 * requests)), SackView(in.subspan(40 + 4 * requests, 4 * responses))};
  return a;
}

Open parse_open(Octets in) {
  Open o;
  o.destination_tag = get_be<std::uint32_t>(in, 12);
  o.initial_tag = get_be<std::uint32_t>(in, 16);
  o.qkey = get_be<std::uint32_t>(in, 20);
  o.isn = {get_be<std::uint32_t>(in, 24), get_be<std::uint32_t>(in, 28)};
  o.window = {get_be<std::uint16_t>(in, 32), get_be<std::uint16_t>(in, 34)};
  o.msn_limit = get_be<std::uint32_t>(in, 36);
  o.max_seg = get_be<std::uint16_t>(in, 40);
  o.options = get_be<std::uint16_t>(in, 42);
  o.ird = get_be<std::uint16_t>(in, 44);
  o.ord = get_be<std::uint16_t>(in, 46);
  o.cookie = get_be<std::uint64_t>(in, 48);
  return o;
}

Close parse_close(Octets in) {
  Close c;
  c.tag = get_be<std::uint32_t>(in, 12);
  c.next = {get_be<std::uint32_t>(in, 16), get_be<std::uint32_t>(in, 28)};
  c.ack = {get_be<std::uint32_t>(in, 20), get_be<std::uint32_t>(in, 24)};
  c.reason = get_be<std::uint8_t>(in, 32);
  return c;
}

Datagram parse_body(const Prefix& prefix, Octets in, std::size_t header) {
  switch (prefix.type) {
    case Type::req:
    case Type::rsp:
      return {prefix, parse_data(in, prefix.flags, header)};
    case Type::ack:
      return {prefix, parse_ack(in)};
    case Type::open:
    case Type::openack:
      return {prefix, parse_open(in)};
    case Type::close:
      return {prefix, parse_close(in)};
    case Type::reset:
      break;
  }
  return {prefix, Reset{get_be<std::uint32_t>(in, 12), static_cast<ResetReason>(get_be<std::uint8_t>(in, 16))}};
}

bool crc_matches(Octets in) {
  Crc32c crc;
  crc.update(in.first(in.size() - kCrcField));
  return crc.matches(in.last<kCrcField>());
}

void emit_prefix(const Prefix& p, std::size_t header, MutableOctets out) {
  assert(header % 4 == 0 && header <= out.size() && header <= kMaxHeader);
  put_be<std::uint8_t>(out, 0, static_cast<std::uint8_t>(kVersion << 4 | static_cast<unsigned>(p.type)));
  put_be<std::uint8_t>(out, 1, p.flags);
  put_be<std::uint8_t>(out, 2, static_cast<std::uint8_t>(header / 4));
  put_be<std::uint8_t>(out, 3, p.aux);
  put_be<std::uint32_t>(out, 4, p.destination & kQpnMask);
  put_be<std::uint32_t>(out, 8, p.source & kQpnMask);
}

void emit_standing(const Standing& s, MutableOctets out) {
  put_be<std::uint32_t>(out, 12, s.tag);
  put_be<std::uint32_t>(out, 16, s.psn);
  put_be<std::uint32_t>(out, 20, s.ack[0]);
  put_be<std::uint32_t>(out, 24, s.ack[1]);
  put_be<std::uint16_t>(out, 28, s.window[0]);
  put_be<std::uint16_t>(out, 30, s.window[1]);
  put_be<std::uint32_t>(out, 32, s.msn_limit);
}

}  // namespace

Result<Datagram, Drop> parse(Octets in, bool accept_without_crc) {
  if (in.size() < kMinDatagram) return Drop::runt;
  const auto first = get_be<std::uint8_t>(in, 0);
  if (first >> 4 != kVersion) return Drop::version;
  const unsigned number = first & 15;
  if (number < static_cast<unsigned>(Type::req) || number > static_cast<unsigned>(Type::reset)) return Drop::type;
  Prefix p;
  p.type = static_cast<Type>(number);
  p.flags = get_be<std::uint8_t>(in, 1);
  p.aux = get_be<std::uint8_t>(in, 3);
  p.destination = get_be<std::uint32_t>(in, 4) & kQpnMask;
  p.source = get_be<std::uint32_t>(in, 8) & kQpnMask;

  const std::size_t header = std::size_t{get_be<std::uint8_t>(in, 2)} * 4;
  std::size_t total = header + kCrcField;
  if (has_segment(p.type)) total += kLengthField;
  if (total > in.size() || header < 4 * known_words(p.type, p.flags, in)) return Drop::length;
  if (has_segment(p.type)) total += get_be<std::uint16_t>(in, header);
  if (total != in.size()) return Drop::length;
  if (p.flags & flag::kNoCrc ? !accept_without_crc : !crc_matches(in)) return Drop::crc;
  return parse_body(p, in, header);
}

std::optional<ForeignOpen> foreign_open(Octets in) {
  if (in.size() < kMinDatagram || (get_be<std::uint8_t>(in, 0) & 15) != static_cast<unsigned>(Type::open)) return {};
  // One flipped bit must not make a version of its own, and a refusal of it.
  if (!crc_matches(in)) return {};
  return ForeignOpen{get_be<std::uint32_t>(in, 4) & kQpnMask, get_be<std::uint32_t>(in, 8) & kQpnMask,
                     get_be<std::uint32_t>(in, 16)};
}

std::size_t emit(const Prefix& prefix, const Data& data, std::size_t segment, MutableOctets out) {
  Prefix p = prefix;
  emit_standing(data.standing, out);
  std::size_t at = kFixed;
  if (data.error_psn) {
    p.flags |= flag::kError;
    put_be<std::uint32_t>(out, std::exchange(at, at + 4), *data.error_psn);
  }
  if (data.immediate) {
    p.flags |= flag::kImmediate;
    put_be<std::uint32_t>(out, std::exchange(at, at + 4), *data.immediate);
  }
  emit_prefix(p, at, out);
  put_be<std::uint16_t>(out, at, static_cast<std::uint16_t>(segment));
  return at + kLengthField;
}

std::size_t emit(const Prefix& prefix, const Standing& standing, std::uint16_t delay_us,
                 const std::array<SackWords, kLaneCount>& sack, MutableOctets out) {
  emit_standing(standing, out);
  put_be<std::uint8_t>(out, 36, sack[0].count);
  put_be<std::uint8_t>(out, 37, sack[1].count);
  put_be<std::uint16_t>(out, 38, delay_us);
  std::size_t at = 40;
  for (const SackWords& lane : sack)
    for (std::size_t i = 0; i < lane.count; ++i) put_be<std::uint32_t>(out, std::exchange(at, at + 4), lane.word[i]);
  emit_prefix(prefix, at, out);
  return at;
}

std::size_t emit(const Prefix& prefix, const Open& o, MutableOctets out) {
  emit_prefix(prefix, 56, out);
  put_be<std::uint32_t>(out, 12, o.destination_tag);
  put_be<std::uint32_t>(out, 16, o.initial_tag);
  put_be<std::uint32_t>(out, 20, o.qkey);
  put_be<std::uint32_t>(out, 24, o.isn[0]);
  put_be<std::uint32_t>(out, 28, o.isn[1]);
  put_be<std::uint16_t>(out, 32, o.window[0]);
  put_be<std::uint16_t>(out, 34, o.window[1]);
  put_be<std::uint32_t>(out, 36, o.msn_limit);
  put_be<std::uint16_t>(out, 40, o.max_seg);
  put_be<std::uint16_t>(out, 42, o.options);
  put_be<std::uint16_t>(out, 44, o.ird);
  put_be<std::uint16_t>(out, 46, o.ord);
  put_be<std::uint64_t>(out, 48, o.cookie);
  return 56;
}

std::size_t emit(const Prefix& prefix, const Close& c, MutableOctets out) {
  emit_prefix(prefix, 36, out);
  put_be<std::uint32_t>(out, 12, c.tag);
  put_be<std::uint32_t>(out, 16, c.next[0]);
  put_be<std::uint32_t>(out, 20, c.ack[0]);
  put_be<std::uint32_t>(out, 24, c.ack[1]);
  put_be<std::uint32_t>(out, 28, c.next[1]);
  put_be<std::uint32_t>(out, 32, std::uint32_t{c.reason} << 24);
  return 36;
}

std::size_t emit(const Prefix& prefix, const Reset& r, MutableOctets out) {
  emit_prefix(prefix, 20, out);
  put_be<std::uint32_t>(out, 12, r.tag);
  put_be<std::uint32_t>(out, 16, std::uint32_t{static_cast<std::uint8_t>(r.reason)} << 24);
  return 20;
}

}  // namespace ewarp::llp::rd
