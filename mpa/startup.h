// MPA connection start-up: the Request and Reply frames (RFC 5044 section 7.1, RFC 6581 sections 4 to 7) and the two
// state machines that exchange them. No I/O and no clock: octets come in, octets go out; timers are the caller's.
#pragma once

#include <array>
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

// Octets that the consumer may hand over with one frame. More than that is the caller's error: the classes below clip.
constexpr std::size_t max_private_data(bool enhanced) {
  return enhanced ? kMaxPrivateData - kEnhancedWord : kMaxPrivateData;
}

// The RTR forms as bits (RFC 6581 section 5: B, C, D).
enum RtrBits : std::uint8_t { kRtrSend = 1, kRtrWrite = 2, kRtrRead = 4 };

// The 4 octets in front of the private data when S=1 (RFC 6581 section 5).
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
  std::uint8_t reserved = 0;  // low 4 bits of octet 16: consent bits of mpa.md section 10 (offer 0x02, accept 0x01)
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

// What both ends agreed on; all that the stream needs to know of the start-up.
struct StreamParams {
  bool initiator = false;
  bool crc = true;
  bool tx_markers = false;  // the peer demanded them
  bool rx_markers = false;  // we demanded them
  bool extensions = false;  // extension set 1 (mpa.md section 10): large ULPDUs, Send with Immediate, RFC 7306
  bool enhanced = false;
  bool peer_to_peer = false;
  // Initiator: the one RTR form to send first (0: none). Responder: the forms that the first FPDU may have (0: any).
  std::uint8_t rtr = 0;
  std::uint16_t ird = 0;  // inbound Reads we accept
  std::uint16_t ord = 0;  // Reads we may have outstanding
  // As the peer's frame said: 0 when not enhanced; may be kDepthNotNegotiated.
  std::uint16_t peer_ird = 0, peer_ord = 0;
  // Not empty: the start-up failed in a way that must be said with this Terminate, then close (2/0/6, 2/0/7, 2/0/5).
  std::optional<Fault> terminate;
};

struct StartupConfig {
  bool enhanced = true;       // initiator: Rev 2, S=1; false: Rev 1. A responder answers in kind
  bool want_crc = true;       // C
  bool want_markers = false;  // M
  bool peer_to_peer = true;   // initiator: A=1 (needs a form in rtr). A responder answers in kind
  std::uint8_t rtr = kRtrWrite | kRtrRead | kRtrSend;  // forms that this side can produce / accept
  bool extensions = true;                              // offer / accept extension set 1
  std::uint16_t ird = 0, ord = 0;
  std::uint16_t max_ird = 128;         // what this side could raise its IRD to when the peer's ORD is larger than ird
  std::uint8_t preferred = kRtrWrite;  // initiator: the form to take if agreed on; then Write, Read, Send
  bool negotiate_depths = true;        // false: frames say kDepthNotNegotiated; ird and ord stay what they are here
};

// Reads one frame piece by piece: never asks for an octet beyond the frame's end, so FPDUs that follow stay unread.
class FrameReader {
 public:
  // Octets to be read next, 0 when the frame is complete (or failed).
  std::size_t want() const;
  // Takes at most want() octets. False: the frame is invalid (wrong key, PD_Length > 512, ...): close. What is wrong is
  // told with the first octet that shows it. More than want() octets are an error too, since nothing may follow.
  bool feed(Octets in, bool expect_reply);
  bool complete() const;
  Octets frame() const { return Octets(buffer_).first(have_); }
  std::string_view why() const { return why_; }

 private:
  bool fail(std::string_view why);

  std::array<std::byte, kStartupHeader + kMaxPrivateData> buffer_{};
  std::size_t have_ = 0;
  std::size_t total_ = kStartupHeader;  // grows once PD_Length is known
  std::string_view why_;
};

// Initiator (RFC 5044 section 7.1.2, RFC 6581 section 9).
class Initiator {
 public:
  // private_data: at most max_private_data(config.enhanced) octets.
  Initiator(const StartupConfig& config, Octets private_data);
  Octets request() const { return request_; }  // to be written whole, first

  enum class Outcome { more, accepted, rejected, failed };
  std::size_t want() const { return reader_.want(); }
  // Takes at most want() octets. failed: close, why() says why. After anything but `more` want() is 0.
  Outcome feed(Octets in);
  // accepted: complete; may carry `terminate`. rejected: peer_ird/peer_ord only.
  const StreamParams& params() const { return params_; }
  Octets private_data() const { return reply_.private_data; }
  bool peer_enhanced() const { return reply_.enhanced.has_value(); }
  std::string_view why() const { return why_; }

 private:
  Outcome fail(std::string_view why);
  Outcome conclude();
  void agree_depths(const Enhanced& reply);
  void agree_rtr(const Enhanced& reply);

  StartupConfig config_;
  std::vector<std::byte> request_;
  FrameReader reader_;
  StartupFrame reply_;
  StreamParams params_;
  std::string_view why_;
};

// Responder (RFC 5044 section 7.1.2, RFC 6581 section 9).
class Responder {
 public:
  enum class Outcome { more, request, failed };
  std::size_t want() const { return reader_.want(); }
  Outcome feed(Octets in);
  // Valid after Outcome::request.
  Octets private_data() const { return request_.private_data; }
  const StartupFrame& request() const { return request_; }
  std::uint16_t peer_ird() const;  // 0 when the request was not enhanced
  std::uint16_t peer_ord() const;
  // The Reply to be written. config.ird/ord are what the consumer gave to accept(); the RFC's rules fit them: ord goes
  // down to the initiator's IRD, ird up to the initiator's ORD as far as max_ird allows.
  std::vector<std::byte> accept(const StartupConfig& config, Octets private_data);
  // config.ird/ord are told as they are (RFC 6581 section 6: the depth that was needed).
  std::vector<std::byte> reject(const StartupConfig& config, Octets private_data);
  const StreamParams& params() const { return params_; }  // after accept()
  std::string_view why() const { return why_; }

 private:
  StartupFrame answer(const StartupConfig& config, Octets private_data) const;
  Enhanced agree(const StartupConfig& config, const Enhanced& request);

  FrameReader reader_;
  StartupFrame request_;
  StreamParams params_;
  std::string_view why_;
};

}  // namespace ewarp::mpa
