// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MPA connection start-up: the two state machines that exchange the Request and the Reply (RFC 5044 section 7.1, RFC
// 6581 section 9). No I/O and no clock: octets come in, octets go out; timers are the caller's.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "mpa/startup_frame.h"

namespace ewarp::mpa {

// What both ends agreed on; all that the stream needs to know of the start-up.
struct StreamParams {
  bool initiator = false;
  bool crc = true;
  bool tx_markers = false;  // the peer demanded them
  bool rx_markers = false;  // we demanded them
  bool extensions = false;  // extension set 1 (docs/protocol/extensions.md)
  bool local = false;       // the ends try to leave TCP for shared memory (docs/protocol/local.md)
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
  bool local = false;                                  // offer / accept shared memory instead of TCP
  std::uint16_t ird = 0, ord = 0;
  std::uint16_t max_ird = 128;         // what this side could raise its IRD to when the peer's ORD is larger than ird
  std::uint8_t preferred = kRtrWrite;  // initiator: the form to take if agreed on; then Write, Read, Send
  bool negotiate_depths = true;        // false: frames say kDepthNotNegotiated; ird and ord stay what they are here
};

// Initiator (RFC 5044 section 7.1.2, RFC 6581 section 9).
class Initiator {
 public:
  // private_data: at most max_private_data(config.enhanced) octets.
  Initiator(const StartupConfig& config, Octets private_data);
  Octets request() const { return request_; }  // to be written whole, first

  // more: the Reply is not complete. The others are final, but that octets behind the Reply make it fail.
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
  static constexpr bool allowed(Outcome from, Outcome to) {
    return to == Outcome::failed ? from != Outcome::failed : from == Outcome::more && to != Outcome::more;
  }
  Outcome enter(Outcome next) {
    assert(allowed(outcome_, next));
    return outcome_ = next;
  }
  Outcome fail(std::string_view why);
  Outcome conclude();
  void agree_depths(const Enhanced& reply);
  void agree_rtr(const Enhanced& reply);

  StartupConfig config_;
  Outcome outcome_ = Outcome::more;
  std::vector<std::byte> request_;
  FrameReader reader_;
  StartupFrame reply_;
  StreamParams params_;
  std::string_view why_;
};

// Responder (RFC 5044 section 7.1.2, RFC 6581 section 9).
class Responder {
 public:
  // more: the Request is not complete. request: it waits for accept() or reject(); octets behind it make it fail.
  enum class Outcome { more, request, failed };
  std::size_t want() const { return reader_.want(); }
  Outcome feed(Octets in);
  // All that follows requires Outcome::request.
  Octets private_data() const { return request_.private_data; }
  const StartupFrame& request() const { return request_; }
  bool offers_local() const;
  std::uint16_t peer_ird() const;  // 0 when the request was not enhanced
  std::uint16_t peer_ord() const;
  // The Reply to be written. config.ird/ord are what the consumer gave to accept(); the RFC's rules fit them: ord goes
  // down to the initiator's IRD, ird up to the initiator's ORD as far as max_ird allows.
  std::vector<std::byte> accept(const StartupConfig& config, Octets private_data);
  // config.ird/ord are told as they are (RFC 6581 section 9.1: the depth that was needed).
  std::vector<std::byte> reject(const StartupConfig& config, Octets private_data);
  const StreamParams& params() const { return params_; }  // after accept()
  std::string_view why() const { return why_; }

 private:
  static constexpr bool allowed(Outcome from, Outcome to) {
    return to == Outcome::failed ? from != Outcome::failed : from == Outcome::more && to == Outcome::request;
  }
  Outcome enter(Outcome next) {
    assert(allowed(outcome_, next));
    return outcome_ = next;
  }
  Outcome fail(std::string_view why);
  StartupFrame answer(const StartupConfig& config, Octets private_data) const;
  Enhanced agree(const StartupConfig& config, const Enhanced& request);

  Outcome outcome_ = Outcome::more;
  FrameReader reader_;
  StartupFrame request_;
  StreamParams params_;
  std::string_view why_;
};

}  // namespace ewarp::mpa
