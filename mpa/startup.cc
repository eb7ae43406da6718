// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpa/startup.h"

#include <algorithm>
#include <utility>

namespace ewarp::mpa {
namespace {

// Consent of docs/protocol/extensions.md section 1. The answer is not the echo of the offer: Linux siw copies reserved
// bits.
constexpr std::uint8_t kConsentMask = 0x03, kOffer = 0x02, kAccept = 0x01;
// The same for shared memory instead of TCP (docs/protocol/local.md section 1).
constexpr std::uint8_t kLocalMask = 0x0c, kLocalOffer = 0x08, kLocalAccept = 0x04;

constexpr std::uint8_t kAllRtr = kRtrSend | kRtrWrite | kRtrRead;

constexpr std::uint16_t clip_depth(std::uint16_t depth) {
  return std::min(depth, kMaxDepth);
}

std::vector<std::byte> to_vector(Octets in) {
  return {in.begin(), in.end()};
}

// The part of StreamParams that the two frames decide alike on both sides.
StreamParams common_params(const StartupFrame& own, const StartupFrame& peer, const StartupConfig& config) {
  StreamParams p;
  p.crc = own.crc || peer.crc;
  p.tx_markers = peer.markers;
  p.rx_markers = own.markers;
  p.ird = clip_depth(config.ird);
  p.ord = clip_depth(config.ord);
  return p;
}

bool offered(const StartupFrame& request) {
  return (request.reserved & kConsentMask) == kOffer;
}
bool consented(const StartupFrame& reply) {
  return (reply.reserved & kConsentMask) == kAccept;
}

}  // namespace

// --- Initiator ---

namespace {

Enhanced requested(const StartupConfig& config) {
  Enhanced e;
  e.rtr = config.peer_to_peer ? config.rtr & kAllRtr : 0;
  e.peer_to_peer = e.rtr != 0;
  e.ird = config.negotiate_depths ? clip_depth(config.ird) : kDepthNotNegotiated;
  e.ord = config.negotiate_depths ? clip_depth(config.ord) : kDepthNotNegotiated;
  return e;
}

StartupFrame request_frame(const StartupConfig& config) {
  StartupFrame f;
  f.markers = config.want_markers;
  f.crc = config.want_crc;
  f.reserved = static_cast<std::uint8_t>((config.extensions ? kOffer : 0) | (config.local ? kLocalOffer : 0));
  f.revision = config.enhanced ? 2 : 1;
  if (config.enhanced) f.enhanced = requested(config);
  return f;
}

std::uint8_t choose_rtr(std::uint8_t agreed, std::uint8_t preferred) {
  for (const std::uint8_t form : {preferred, std::uint8_t{kRtrWrite}, std::uint8_t{kRtrRead}, std::uint8_t{kRtrSend}})
    if (form != 0 && (agreed & form) == form) return form;
  return 0;
}

}  // namespace

Initiator::Initiator(const StartupConfig& config, Octets private_data) : config_(config) {
  StartupFrame request = request_frame(config);
  request.private_data = to_vector(private_data);
  request_ = request.emit();
}

Initiator::Outcome Initiator::fail(std::string_view why) {
  why_ = why;
  return enter(Outcome::failed);
}

Initiator::Outcome Initiator::feed(Octets in) {
  if (outcome_ == Outcome::failed) return outcome_;
  if (!reader_.feed(in, true)) return fail(reader_.why());
  return outcome_ == Outcome::more && reader_.complete() ? conclude() : outcome_;
}

Initiator::Outcome Initiator::conclude() {
  std::string_view why;
  Result<StartupFrame> reply = StartupFrame::parse(reader_.frame(), &why);
  if (!reply.ok()) return fail(why);
  reply_ = std::move(reply.value());
  params_ = common_params(request_frame(config_), reply_, config_);
  params_.initiator = true;
  if (reply_.enhanced.has_value()) {
    params_.peer_ird = reply_.enhanced->ird;
    params_.peer_ord = reply_.enhanced->ord;
  }
  // A peer that refuses need not have understood S: siw answers M=1 with a bare R=1.
  if (reply_.reject) return enter(Outcome::rejected);
  if (reply_.enhanced.has_value() != config_.enhanced)
    return fail(config_.enhanced ? "S=1 was answered with S=0" : "S=0 was answered with S=1");

  params_.extensions = config_.extensions && consented(reply_);
  params_.local = config_.local && (reply_.reserved & kLocalMask) == kLocalAccept;
  params_.enhanced = config_.enhanced;
  if (reply_.enhanced.has_value()) {
    agree_depths(*reply_.enhanced);
    agree_rtr(*reply_.enhanced);
  }
  return enter(Outcome::accepted);
}

// RFC 6581 section 9.1: both ORDs end up within the other side's IRD.
void Initiator::agree_depths(const Enhanced& reply) {
  if (!config_.negotiate_depths) return;
  if (reply.ird != kDepthNotNegotiated) params_.ord = std::min(params_.ord, reply.ird);
  if (reply.ord == kDepthNotNegotiated || reply.ord <= params_.ird) return;
  if (reply.ord <= config_.max_ird) {
    params_.ird = reply.ord;
  } else {
    params_.terminate = fault::kMpaInsufficientIrd;
  }
}

void Initiator::agree_rtr(const Enhanced& reply) {
  const Enhanced asked = requested(config_);
  params_.peer_to_peer = asked.peer_to_peer;
  if (asked.peer_to_peer) {
    const std::uint8_t agreed = reply.peer_to_peer ? asked.rtr & reply.rtr : 0;
    params_.rtr = choose_rtr(agreed, config_.preferred);
    if (params_.rtr == 0 && !params_.terminate.has_value()) params_.terminate = fault::kMpaNoRtr;
  } else if (reply.peer_to_peer && !params_.terminate.has_value()) {
    // The responder would wait for an RTR that this side did not offer; no code says so more closely.
    params_.terminate = fault::kMpaLocalCatastrophic;
  }
  if (params_.terminate.has_value()) params_.rtr = 0;  // the Terminate is the first and only FPDU
}

// --- Responder ---

Responder::Outcome Responder::fail(std::string_view why) {
  why_ = why;
  return enter(Outcome::failed);
}

Responder::Outcome Responder::feed(Octets in) {
  if (outcome_ == Outcome::failed) return outcome_;
  if (!reader_.feed(in, false)) return fail(reader_.why());
  if (outcome_ != Outcome::more || !reader_.complete()) return outcome_;
  std::string_view why;
  Result<StartupFrame> request = StartupFrame::parse(reader_.frame(), &why);
  if (!request.ok()) return fail(why);
  request_ = std::move(request.value());
  return enter(Outcome::request);
}

std::uint16_t Responder::peer_ird() const {
  return request_.enhanced.has_value() ? request_.enhanced->ird : 0;
}
std::uint16_t Responder::peer_ord() const {
  return request_.enhanced.has_value() ? request_.enhanced->ord : 0;
}

StartupFrame Responder::answer(const StartupConfig& config, Octets private_data) const {
  assert(outcome_ == Outcome::request);
  StartupFrame f;
  f.reply = true;
  f.markers = config.want_markers;
  // C=1 whenever CRC ends up on, so that a peer that looks at the Reply alone agrees.
  f.crc = config.want_crc || request_.crc;
  f.revision = request_.revision;
  f.private_data = to_vector(private_data);
  return f;
}

namespace {

// Forms that the Reply names. Supporting one form at least is mandatory (RFC 6581 section 9.2); a zero-length Write can
// always be received.
std::uint8_t answered_rtr(std::uint8_t asked, std::uint8_t own) {
  const std::uint8_t supported = (own & kAllRtr) != 0 ? own & kAllRtr : std::uint8_t{kRtrWrite};
  return (asked & supported) != 0 ? asked & supported : supported;
}

}  // namespace

// Sets ird, ord and rtr of params_ and returns the word that says them.
Enhanced Responder::agree(const StartupConfig& config, const Enhanced& request) {
  const bool ord_told = config.negotiate_depths && request.ird != kDepthNotNegotiated;
  const bool ird_told = config.negotiate_depths && request.ord != kDepthNotNegotiated;
  if (ord_told) params_.ord = std::min(params_.ord, request.ird);
  if (ird_told) params_.ird = std::max(params_.ird, std::min(request.ord, clip_depth(config.max_ird)));

  Enhanced word;
  word.peer_to_peer = params_.peer_to_peer = request.peer_to_peer;
  if (request.peer_to_peer) {
    word.rtr = answered_rtr(request.rtr, config.rtr);
    // An RTR by Read takes one place of the IRD: make one, or do without Reads where another form remains.
    if ((word.rtr & kRtrRead) != 0 && params_.ird == 0) {
      if (config.max_ird > 0 || word.rtr == kRtrRead) {
        params_.ird = 1;
      } else {
        word.rtr &= static_cast<std::uint8_t>(~kRtrRead);
      }
    }
    params_.rtr = word.rtr;
  }
  word.ird = ird_told ? params_.ird : kDepthNotNegotiated;
  word.ord = ord_told ? params_.ord : kDepthNotNegotiated;
  return word;
}

bool Responder::offers_local() const {
  return (request_.reserved & kLocalMask) == kLocalOffer;
}

std::vector<std::byte> Responder::accept(const StartupConfig& config, Octets private_data) {
  StartupFrame reply = answer(config, private_data);
  params_ = common_params(reply, request_, config);
  params_.extensions = config.extensions && offered(request_);
  params_.local = config.local && offers_local();
  reply.reserved = static_cast<std::uint8_t>((params_.extensions ? kAccept : 0) | (params_.local ? kLocalAccept : 0));
  if (request_.enhanced.has_value()) {
    params_.enhanced = true;
    params_.peer_ird = request_.enhanced->ird;
    params_.peer_ord = request_.enhanced->ord;
    reply.enhanced = agree(config, *request_.enhanced);
  }
  return reply.emit();
}

std::vector<std::byte> Responder::reject(const StartupConfig& config, Octets private_data) {
  StartupFrame reply = answer(config, private_data);
  reply.reject = true;
  if (request_.enhanced.has_value()) {
    Enhanced word = requested(config);
    word.peer_to_peer = request_.enhanced->peer_to_peer;
    word.rtr = word.peer_to_peer ? answered_rtr(request_.enhanced->rtr, config.rtr) : 0;
    reply.enhanced = word;
  }
  return reply.emit();
}

}  // namespace ewarp::mpa
