// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "ddp/header.h"

#include <cinttypes>
#include <cstdio>

namespace ewarp::ddp {
namespace {

// The first octet: T, L, four reserved bits that are sent as zero, DV.
std::uint8_t control(bool tagged, bool last) {
  return static_cast<std::uint8_t>((tagged ? kTagged : 0) | (last ? kLast : 0) | kVersion);
}

bool version_is_ours(std::uint8_t control) {
  return (control & kVersionMask) == kVersion;
}

}  // namespace

// RFC 5041 figure 4. The version comes first: it also says whether the rest can be read at all. A segment shorter than
// its header has no code of its own in section 7.2; "local catastrophic" is our choice.
Result<TaggedHeader> TaggedHeader::parse(Octets in) {
  if (in.empty()) return fault::kDdpLocalCatastrophic;
  const auto first = get_be<std::uint8_t>(in, 0);
  if (!version_is_ours(first)) return fault::kDdpTaggedVersion;
  if (in.size() < kSize) return fault::kDdpLocalCatastrophic;
  return TaggedHeader{(first & kLast) != 0, get_be<std::uint8_t>(in, 1), get_be<std::uint32_t>(in, 2),
                      get_be<std::uint64_t>(in, 6)};
}

void TaggedHeader::emit(std::span<std::byte, kSize> out) const {
  put_be<std::uint8_t>(out, 0, control(true, last));
  put_be<std::uint8_t>(out, 1, ulp);
  put_be<std::uint32_t>(out, 2, stag);
  put_be<std::uint64_t>(out, 6, offset);
}

// RFC 5041 figure 5.
Result<UntaggedHeader> UntaggedHeader::parse(Octets in) {
  if (in.empty()) return fault::kDdpLocalCatastrophic;
  const auto first = get_be<std::uint8_t>(in, 0);
  if (!version_is_ours(first)) return fault::kDdpUntaggedVersion;
  if (in.size() < kSize) return fault::kDdpLocalCatastrophic;
  return UntaggedHeader{(first & kLast) != 0,         get_be<std::uint8_t>(in, 1),   get_be<std::uint32_t>(in, 2),
                        get_be<std::uint32_t>(in, 6), get_be<std::uint32_t>(in, 10), get_be<std::uint32_t>(in, 14)};
}

void UntaggedHeader::emit(std::span<std::byte, kSize> out) const {
  put_be<std::uint8_t>(out, 0, control(false, last));
  put_be<std::uint8_t>(out, 1, ulp);
  put_be<std::uint32_t>(out, 2, ulp_word);
  put_be<std::uint32_t>(out, 6, qn);
  put_be<std::uint32_t>(out, 10, msn);
  put_be<std::uint32_t>(out, 14, mo);
}

std::string to_string(const TaggedHeader& h) {
  char text[96];
  std::snprintf(text, sizeof text, "tagged ulp=%02x stag=%08" PRIx32 " to=%016" PRIx64 "%s", h.ulp, h.stag, h.offset,
                h.last ? " last" : "");
  return text;
}

std::string to_string(const UntaggedHeader& h) {
  char text[112];
  std::snprintf(text, sizeof text,
                "untagged ulp=%02x qn=%" PRIu32 " msn=%" PRIu32 " mo=%" PRIu32 " word=%08" PRIx32 "%s", h.ulp, h.qn,
                h.msn, h.mo, h.ulp_word, h.last ? " last" : "");
  return text;
}

}  // namespace ewarp::ddp
