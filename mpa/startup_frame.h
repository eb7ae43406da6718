// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The frames of MPA connection start-up (RFC 5044 section 7.1, RFC 6581 sections 6 and 9), and a reader that takes one
// off a stream. No I/O and no clock.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "llp/fault.h"
#include "llp/octets.h"

namespace ewarp::mpa {

inline constexpr std::size_t kStartupHeader = 20;    // octets before the private data
inline constexpr std::size_t kMaxPrivateData = 512;  // RFC 5044 section 7.1
inline constexpr std::size_t kEnhancedWord = 4;      // in front of the private data when S=1, and counted as such
inline constexpr std::uint16_t kDepthNotNegotiated = 0x3fff;
inline constexpr std::uint16_t kMaxDepth = 0x3ffe;

// Octets that the consumer may hand over with one frame. More than that is the caller's error: it is clipped.
constexpr std::size_t max_private_data(bool enhanced) {
  return enhanced ? kMaxPrivateData - kEnhancedWord : kMaxPrivateData;
}

// The RTR forms as bits (RFC 6581 section 9: B, C, D).
enum RtrBits : std::uint8_t { kRtrSend = 1, kRtrWrite = 2, kRtrRead = 4 };

// The 4 octets in front of the private data when S=1 (RFC 6581 section 9).
struct Enhanced {
  bool peer_to_peer = false;  // A
  std::uint8_t rtr = 0;       // RtrBits
  std::uint16_t ird = 0;      // 0..0x3ffe, or kDepthNotNegotiated
  std::uint16_t ord = 0;
  bool operator==(const Enhanced&) const = default;
};

struct StartupFrame {
  bool reply = false;  // which of the two keys
  bool markers = false, crc = false, reject = false;
  // Low 4 bits of octet 16: consent to extensions (offer 0x02, accept 0x01; docs/protocol/extensions.md section 1) and
  // to a local stream (0x08, 0x04; docs/protocol/local.md section 1).
  std::uint8_t reserved = 0;
  std::uint8_t revision = 2;
  std::optional<Enhanced> enhanced;     // S bit
  std::vector<std::byte> private_data;  // the consumer's, without the enhanced word

  // in holds exactly one frame, request or reply. Errors are always fault::kMpaStartup; `why` (if given) says which
  // check failed. R of a Request is read as it stands; it means nothing (RFC 5044 section 7.1.1).
  static Result<StartupFrame> parse(Octets in, std::string_view* why = nullptr);
  // Private data is clipped to max_private_data(), depths above kMaxDepth count as kDepthNotNegotiated.
  std::vector<std::byte> emit() const;
  bool operator==(const StartupFrame&) const = default;
};

// Reads one frame piece by piece: never asks for an octet beyond the frame's end, so FPDUs that follow stay unread.
class FrameReader {
 public:
  enum class State : std::uint8_t {
    header,        // the 20 fixed octets
    private_data,  // PD_Length is known
    complete,
    failed,
  };

  // Octets to be read next, 0 when the frame is complete (or failed).
  std::size_t want() const;
  // Takes at most want() octets. False: the frame is invalid (wrong key, PD_Length > 512, ...): close. What is wrong is
  // told with the first octet that shows it. More than want() octets are an error too, since nothing may follow.
  bool feed(Octets in, bool expect_reply);
  bool complete() const { return state_ == State::complete; }
  // What has been read.
  Octets frame() const { return Octets(buffer_).first(have_); }
  std::string_view why() const { return why_; }

 private:
  static constexpr bool allowed(State from, State to) {
    switch (to) {
      case State::header:
        return false;
      case State::private_data:
        return from == State::header;
      case State::complete:
        return from == State::private_data;
      case State::failed:
        return from != State::failed;
    }
    return false;
  }
  void enter(State next) {
    assert(allowed(state_, next));
    state_ = next;
  }
  bool fail(std::string_view why);
  bool take_header(bool expect_reply);

  State state_ = State::header;
  std::array<std::byte, kStartupHeader + kMaxPrivateData> buffer_{};
  std::size_t have_ = 0;
  std::size_t total_ = kStartupHeader;  // grows once PD_Length is known
  std::string_view why_;
};

}  // namespace ewarp::mpa
