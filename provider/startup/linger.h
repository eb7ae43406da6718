// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The end of a stream that no queue pair has any more.
#pragma once

#include <memory>

#include "llp/stream.h"
#include "provider/engine/reactor.h"

namespace ewarp::verbs {

// What was sent arrives, a Terminate included: our direction ends, what comes is read and discarded until the peer has
// ended its own, or for close_timeout_ms. Then as end_now(), without memory at once. Throws nothing. Any thread.
// Requires: the reactor runs.
void linger(Reactor& reactor, std::unique_ptr<llp::Stream> stream);
// The same for a connection whose Request was refused. Anybody can make such ones, so no more than kMostRefused wait at
// a time; the others end at once. Their Reply arrives all the same, if the peer has sent nothing behind its Request.
constexpr unsigned kMostRefused = 128;
void linger_refused(Reactor& reactor, std::unique_ptr<llp::Stream> stream);
// Both directions end, and the reactor watches it no more. What was sent and is not acknowledged is the kernel's, until
// the peer has taken nothing of it for close_timeout_ms. Any thread.
void end_now(Reactor& reactor, std::unique_ptr<llp::Stream> stream);

}  // namespace ewarp::verbs
