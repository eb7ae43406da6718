// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpa/startup_frame.h"

#include <algorithm>
#include <cstring>

namespace ewarp::mpa {
namespace {

constexpr std::size_t kKeySize = 16;
constexpr char kRequestKey[kKeySize + 1] = "MPA ID Req Frame";
constexpr char kReplyKey[kKeySize + 1] = "MPA ID Rep Frame";

// Octet 16. The RFC's figures number the most significant bit 0.
constexpr std::size_t kFlagsAt = 16, kRevisionAt = 17, kLengthAt = 18;
constexpr std::uint8_t kMarkersFlag = 0x80, kCrcFlag = 0x40, kRejectFlag = 0x20, kEnhancedFlag = 0x10;
constexpr std::uint8_t kReservedMask = 0x0f;

// The two halves of the enhanced word (RFC 6581 section 9).
constexpr std::uint16_t kPeerToPeerBit = 0x8000, kRtrSendBit = 0x4000;  // A, B beside IRD
constexpr std::uint16_t kRtrWriteBit = 0x8000, kRtrReadBit = 0x4000;    // C, D beside ORD
constexpr std::uint16_t kDepthMask = 0x3fff;

constexpr std::uint16_t depth_on_wire(std::uint16_t depth) {
  return std::min(depth, kDepthNotNegotiated);
}

Enhanced parse_enhanced(Octets in) {
  const auto first = get_be<std::uint16_t>(in, 0);
  const auto second = get_be<std::uint16_t>(in, 2);
  Enhanced e;
  e.peer_to_peer = (first & kPeerToPeerBit) != 0;
  e.ird = first & kDepthMask;
  e.ord = second & kDepthMask;
  if ((first & kRtrSendBit) != 0) e.rtr |= kRtrSend;
  if ((second & kRtrWriteBit) != 0) e.rtr |= kRtrWrite;
  if ((second & kRtrReadBit) != 0) e.rtr |= kRtrRead;
  return e;
}

void emit_enhanced(const Enhanced& e, MutableOctets out) {
  unsigned first = depth_on_wire(e.ird);
  unsigned second = depth_on_wire(e.ord);
  if (e.peer_to_peer) first |= kPeerToPeerBit;
  if ((e.rtr & kRtrSend) != 0) first |= kRtrSendBit;
  if ((e.rtr & kRtrWrite) != 0) second |= kRtrWriteBit;
  if ((e.rtr & kRtrRead) != 0) second |= kRtrReadBit;
  put_be<std::uint16_t>(out, 0, static_cast<std::uint16_t>(first));
  put_be<std::uint16_t>(out, 2, static_cast<std::uint16_t>(second));
}

bool begins(Octets in, const char* key) {
  return std::memcmp(in.data(), key, std::min(in.size(), kKeySize)) == 0;
}

// In Rev 1 the S bit is a reserved one (RFC 5044 section 7.1.1).
bool is_enhanced(Octets header) {
  return get_be<std::uint8_t>(header, kRevisionAt) >= 2 &&
         (get_be<std::uint8_t>(header, kFlagsAt) & kEnhancedFlag) != 0;
}

// What is wrong with the 20 fixed octets behind the key; empty: nothing.
std::string_view check_fixed(Octets header) {
  const auto revision = get_be<std::uint8_t>(header, kRevisionAt);
  const std::size_t length = get_be<std::uint16_t>(header, kLengthAt);
  if (revision != 1 && revision != 2) return "MPA revision is neither 1 nor 2";
  if (length > kMaxPrivateData) return "PD_Length is above 512";
  if (is_enhanced(header) && length < kEnhancedWord) return "S=1, but PD_Length leaves no room for IRD and ORD";
  return {};
}

// The first key that is met decides the message: a Request where a Reply is due means that both sides initiate.
std::string_view check_key(Octets in, bool expect_reply) {
  if (begins(in, expect_reply ? kReplyKey : kRequestKey)) return {};
  if (!begins(in, expect_reply ? kRequestKey : kReplyKey)) return "the key is not MPA's";
  return expect_reply ? "a Request arrived where a Reply is due: both sides initiate"
                      : "a Reply arrived where a Request is due";
}

Octets clip(Octets private_data, bool enhanced) {
  return private_data.first(std::min(private_data.size(), max_private_data(enhanced)));
}

std::vector<std::byte> to_vector(Octets in) {
  return {in.begin(), in.end()};
}

}  // namespace

Result<StartupFrame> StartupFrame::parse(Octets in, std::string_view* why) {
  const auto fail = [why](std::string_view reason) {
    if (why != nullptr) *why = reason;
    return Result<StartupFrame>(fault::kMpaStartup);
  };
  if (in.size() < kStartupHeader) return fail("shorter than a start-up frame");
  StartupFrame f;
  f.reply = begins(in, kReplyKey);
  if (!f.reply && !begins(in, kRequestKey)) return fail("the key is not MPA's");
  if (const std::string_view wrong = check_fixed(in); !wrong.empty()) return fail(wrong);
  if (in.size() != kStartupHeader + get_be<std::uint16_t>(in, kLengthAt)) return fail("not PD_Length octets long");

  const auto flags = get_be<std::uint8_t>(in, kFlagsAt);
  f.markers = (flags & kMarkersFlag) != 0;
  f.crc = (flags & kCrcFlag) != 0;
  f.reject = (flags & kRejectFlag) != 0;
  f.reserved = flags & kReservedMask;
  f.revision = get_be<std::uint8_t>(in, kRevisionAt);
  Octets data = in.subspan(kStartupHeader);
  if (is_enhanced(in)) {
    f.enhanced = parse_enhanced(data);
    data = data.subspan(kEnhancedWord);
  }
  f.private_data = to_vector(data);
  return f;
}

std::vector<std::byte> StartupFrame::emit() const {
  const Octets data = clip(private_data, enhanced.has_value());
  const std::size_t word = enhanced.has_value() ? kEnhancedWord : 0;
  std::vector<std::byte> out(kStartupHeader + word + data.size());
  std::memcpy(out.data(), reply ? kReplyKey : kRequestKey, kKeySize);
  unsigned flags = reserved & kReservedMask;
  if (markers) flags |= kMarkersFlag;
  if (crc) flags |= kCrcFlag;
  if (reject) flags |= kRejectFlag;
  if (enhanced.has_value()) flags |= kEnhancedFlag;
  put_be<std::uint8_t>(out, kFlagsAt, static_cast<std::uint8_t>(flags));
  put_be<std::uint8_t>(out, kRevisionAt, revision);
  put_be<std::uint16_t>(out, kLengthAt, static_cast<std::uint16_t>(word + data.size()));
  if (enhanced.has_value()) emit_enhanced(*enhanced, MutableOctets(out).subspan(kStartupHeader));
  std::copy(data.begin(), data.end(), out.begin() + static_cast<std::ptrdiff_t>(kStartupHeader + word));
  return out;
}

// --- FrameReader ---

std::size_t FrameReader::want() const {
  assert(have_ <= total_ && total_ <= buffer_.size());
  return state_ == State::failed ? 0 : total_ - have_;
}

bool FrameReader::fail(std::string_view why) {
  enter(State::failed);
  why_ = why;
  return false;
}

bool FrameReader::feed(Octets in, bool expect_reply) {
  if (state_ == State::failed) return false;
  if (in.size() > want()) return fail("octets beyond the end of the start-up frame");
  if (in.empty()) return true;
  std::memcpy(buffer_.data() + have_, in.data(), in.size());
  have_ += in.size();
  if (state_ == State::header && !take_header(expect_reply)) return false;
  if (state_ == State::private_data && have_ == total_) enter(State::complete);
  return true;
}

// False: what there is of the header is wrong.
bool FrameReader::take_header(bool expect_reply) {
  const Octets header = frame();
  if (const std::string_view wrong = check_key(header, expect_reply); !wrong.empty()) return fail(wrong);
  if (have_ < kStartupHeader) return true;
  if (const std::string_view wrong = check_fixed(header); !wrong.empty()) return fail(wrong);
  total_ = kStartupHeader + get_be<std::uint16_t>(header, kLengthAt);
  enter(State::private_data);
  return true;
}

}  // namespace ewarp::mpa
