// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the two source files of mpa_startup_test share: raw frames from an encoder of the test's own.
#pragma once

#include "mpa/startup.h"
#include "tests/vectors/vectors.h"

namespace ewarp::test {

inline constexpr unsigned kM = 0x80, kC = 0x40, kR = 0x20, kS = 0x10;  // octet 16, RFC 5044 figure 8 and RFC 6581

// A start-up frame octet by octet; nothing is checked or clipped.
Bytes raw_frame(bool reply, unsigned flags, unsigned revision, const Bytes& data);
// A||B||IRD, C||D||ORD: RFC 6581 section 9. rtr in RtrBits.
Bytes raw_word(bool peer_to_peer, unsigned rtr, unsigned ird, unsigned ord);

Bytes numbered(std::size_t n);  // 0, 1, 2, ... modulo 256

struct Dialogue {
  mpa::Initiator::Outcome outcome;
  mpa::StreamParams initiator, responder;
  Bytes request, reply;
};
// Both state machines against each other, frames handed over whole.
Dialogue converse(const mpa::StartupConfig& initiator, const mpa::StartupConfig& responder);
// The Initiator against a frame of the test's own; sent in two reads as want() says.
mpa::Initiator against(const mpa::StartupConfig& config, const Bytes& reply, mpa::Initiator::Outcome expected);
// The Responder after it has read the request.
mpa::Responder with_request(const Bytes& request);

extern const std::vector<CMUnitTest> kNegotiationTests;

}  // namespace ewarp::test
