#include "mpa/startup.h"

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

// Consent of mpa.md section 10. The answer is not the echo of the offer: Linux siw copies reserved bits.
constexpr std::uint8_t kConsentMask = 0x03, kOffer = 0x02, kAccept = 0x01;

// The two halves of the enhanced word (RFC 6581 section 5).
constexpr std::uint16_t kPeerToPeerBit = 0x8000, kRtrSendBit = 0x4000;  // A, B beside IRD
constexpr std::uint16_t kRtrWriteBit = 0x8000, kRtrReadBit = 0x4000;    // C, D beside ORD
constexpr std::uint16_t kDepthMask = 0x3fff;
constexpr std::uint8_t kAllRtr = kRtrSend | kRtrWrite | kRtrRead;

constexpr std::uint16_t depth_on_wire(std::uint16_t depth) {
  return std::min(depth, kDepthNotNegotiated);
}
constexpr std::uint16_t clip_depth(std::uint16_t depth) {
  return std::min(depth, kMaxDepth);
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
  return why_.empty() ? total_ - have_ : 0;
}

// total_ equals the header alone until PD_Length was read; a frame without private data is complete then.
bool FrameReader::complete() const {
  return why_.empty() && have_ == total_;
}

bool FrameReader::fail(std::string_view why) {
  why_ = why;
  return false;
}

bool FrameReader::feed(Octets in, bool expect_reply) {
  if (!why_.empty()) return false;
  if (in.size() > want()) return fail("octets beyond the end of the start-up frame");
  if (in.empty()) return true;
  std::memcpy(buffer_.data() + have_, in.data(), in.size());
  const bool had_header = have_ >= kStartupHeader;
  have_ += in.size();
  if (had_header) return true;

  const Octets header = frame();
  if (const std::string_view wrong = check_key(header, expect_reply); !wrong.empty()) return fail(wrong);
  if (have_ < kStartupHeader) return true;
  if (const std::string_view wrong = check_fixed(header); !wrong.empty()) return fail(wrong);
  total_ = kStartupHeader + get_be<std::uint16_t>(header, kLengthAt);
  return true;
}

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
  f.reserved = config.extensions ? kOffer : 0;
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
  request.private_data = to_vector(clip(private_data, config.enhanced));
  request_ = request.emit();
}

Initiator::Outcome Initiator::fail(std::string_view why) {
  why_ = why;
  return Outcome::failed;
}

Initiator::Outcome Initiator::feed(Octets in) {
  if (!why_.empty()) return Outcome::failed;
  if (!reader_.feed(in, true)) return fail(reader_.why());
  return reader_.complete() ? conclude() : Outcome::more;
}

Initiator::Outcome Initiator::conclude() {
  Result<StartupFrame> reply = StartupFrame::parse(reader_.frame(), &why_);
  if (!reply.ok()) return Outcome::failed;
  reply_ = std::move(reply.value());
  params_ = common_params(request_frame(config_), reply_, config_);
  params_.initiator = true;
  if (reply_.enhanced.has_value()) {
    params_.peer_ird = reply_.enhanced->ird;
    params_.peer_ord = reply_.enhanced->ord;
  }
  // A peer that refuses need not have understood S: siw answers M=1 with a bare R=1.
  if (reply_.reject) return Outcome::rejected;
  if (reply_.enhanced.has_value() != config_.enhanced)
    return fail(config_.enhanced ? "S=1 was answered with S=0" : "S=0 was answered with S=1");

  params_.extensions = config_.extensions && consented(reply_);
  params_.enhanced = config_.enhanced;
  if (reply_.enhanced.has_value()) {
    agree_depths(*reply_.enhanced);
    agree_rtr(*reply_.enhanced);
  }
  return Outcome::accepted;
}

// RFC 6581 section 6: both ORDs end up within the other side's IRD.
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

Responder::Outcome Responder::feed(Octets in) {
  if (!why_.empty()) return Outcome::failed;
  if (!reader_.feed(in, false)) {
    why_ = reader_.why();
    return Outcome::failed;
  }
  if (!reader_.complete()) return Outcome::more;
  Result<StartupFrame> request = StartupFrame::parse(reader_.frame(), &why_);
  if (!request.ok()) return Outcome::failed;
  request_ = std::move(request.value());
  return Outcome::request;
}

std::uint16_t Responder::peer_ird() const {
  return request_.enhanced.has_value() ? request_.enhanced->ird : 0;
}
std::uint16_t Responder::peer_ord() const {
  return request_.enhanced.has_value() ? request_.enhanced->ord : 0;
}

StartupFrame Responder::answer(const StartupConfig& config, Octets private_data) const {
  StartupFrame f;
  f.reply = true;
  f.markers = config.want_markers;
  // C=1 whenever CRC ends up on, so that a peer that looks at the Reply alone agrees.
  f.crc = config.want_crc || request_.crc;
  f.revision = request_.revision;
  f.private_data = to_vector(clip(private_data, request_.enhanced.has_value()));
  return f;
}

namespace {

// Forms that the Reply names. Supporting one form at least is mandatory (RFC 6581 section 5); a zero-length Write can
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

std::vector<std::byte> Responder::accept(const StartupConfig& config, Octets private_data) {
  StartupFrame reply = answer(config, private_data);
  params_ = common_params(reply, request_, config);
  params_.extensions = config.extensions && offered(request_);
  if (params_.extensions) reply.reserved = kAccept;
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
