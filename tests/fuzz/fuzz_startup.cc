// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Start-up frames: the parser, the frame reader in pieces, and both state machines.
#include <algorithm>

#include "mpa/startup.h"
#include "tests/fuzz/fuzz.h"

namespace ewarp::fuzz {
namespace {

using mpa::Initiator;
using mpa::Responder;
using mpa::StartupConfig;
using mpa::StartupFrame;
using mpa::StreamParams;

StartupConfig config_from(unsigned a, unsigned b, unsigned c) {
  StartupConfig config;
  config.enhanced = (a & 1) != 0;
  config.want_crc = (a & 2) != 0;
  config.want_markers = (a & 4) != 0;
  config.peer_to_peer = (a & 8) != 0;
  config.extensions = (a & 16) != 0;
  config.negotiate_depths = (a & 32) == 0;
  config.rtr = b & 7;
  config.preferred = static_cast<std::uint8_t>(1u << b / 8 % 3);
  config.ird = static_cast<std::uint16_t>(c & 15);
  config.ord = static_cast<std::uint16_t>(c >> 4);
  config.max_ird = static_cast<std::uint16_t>(b >> 4);
  return config;
}

void check_parse(Octets in) {
  const std::vector<std::byte> copy = exact(in);
  const auto frame = StartupFrame::parse(copy);
  if (!frame.ok()) {
    FUZZ_CHECK(frame.error() == fault::kMpaStartup);
    return;
  }
  // The same octets again, but for the place of S in Rev 1, which is reserved there.
  std::vector<std::byte> again = frame.value().emit();
  FUZZ_CHECK(again.size() == copy.size());
  if (frame.value().revision == 1) again[16] |= copy[16] & std::byte{0x10};
  FUZZ_CHECK(again == copy);
}

template <class Side>
auto pump(Side& side, Octets in, std::size_t piece) {
  auto outcome = side.feed({});
  while (side.want() > 0 && !in.empty()) {
    const std::size_t n = std::min({side.want(), in.size(), piece});
    const std::vector<std::byte> copy = exact(in.first(n));
    outcome = side.feed(copy);
    in = in.subspan(n);
  }
  return outcome;
}

void check_initiator(const StartupConfig& config, Octets in, std::size_t piece) {
  Initiator initiator(config, {});
  FUZZ_CHECK(StartupFrame::parse(initiator.request()).ok());
  const auto outcome = pump(initiator, in, piece);
  if (outcome == Initiator::Outcome::failed) FUZZ_CHECK(!initiator.why().empty());
  if (outcome != Initiator::Outcome::accepted) return;
  const StreamParams& p = initiator.params();
  FUZZ_CHECK(p.enhanced == config.enhanced && p.initiator);
  FUZZ_CHECK(!p.extensions || config.extensions);
  FUZZ_CHECK((p.rtr & ~config.rtr) == 0 && (p.rtr & (p.rtr - 1)) == 0);
  FUZZ_CHECK(p.terminate.has_value() || !p.peer_to_peer || p.rtr != 0);
  FUZZ_CHECK(p.ird <= mpa::kMaxDepth && p.ord <= config.ord && p.ird <= std::max(config.ird, config.max_ird));
}

void check_responder(const StartupConfig& config, Octets in, std::size_t piece) {
  Responder responder;
  const auto outcome = pump(responder, in, piece);
  if (outcome == Responder::Outcome::failed) FUZZ_CHECK(!responder.why().empty());
  if (outcome != Responder::Outcome::request) return;
  const auto reply = StartupFrame::parse(responder.accept(config, responder.private_data()));
  FUZZ_CHECK(reply.ok() && reply.value().reply && !reply.value().reject);
  FUZZ_CHECK(reply.value().enhanced.has_value() == responder.request().enhanced.has_value());
  FUZZ_CHECK(reply.value().crc == responder.params().crc);
  FUZZ_CHECK(reply.value().reserved == (responder.params().extensions ? 1 : 0));
  const StreamParams& p = responder.params();
  FUZZ_CHECK(p.ird <= mpa::kMaxDepth && p.ord <= config.ord);
  FUZZ_CHECK(!p.peer_to_peer || p.rtr != 0);
  const auto rejection = StartupFrame::parse(responder.reject(config, responder.private_data()));
  FUZZ_CHECK(rejection.ok() && rejection.value().reject);
}

}  // namespace
}  // namespace ewarp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ewarp::fuzz;
  Input whole(data, size);
  check_parse(whole.rest());
  // Once with settings of its own, so that plain frames of the corpus are understood, and once with settings from it.
  check_initiator({}, whole.rest(), 532);
  check_responder({}, whole.rest(), 532);
  Input input(data, size);
  const unsigned a = input.octet(), b = input.octet(), c = input.octet(), piece = 1 + input.octet() % 40;
  const auto config = config_from(a, b, c);
  check_initiator(config, whole.rest(), piece);
  check_responder(config, whole.rest(), piece);
  check_initiator(config, input.rest(), piece);
  check_responder(config, input.rest(), piece);
  return 0;
}
