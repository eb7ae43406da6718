// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The graceful end of a stream.
#include "provider/base/options.h"
#include "provider/engine/engine.h"
#include "provider/verbs/rc/rc_queue_pair.h"

#include <cassert>
#include <utility>

namespace ewarp::verbs {

// Graceful: sends that were posted go out, then FIN; receives are given back at once (a server that waits for its flush
// would hang otherwise).
void RcQueuePair::begin_close() {
  engine().assert_held();
  if (connection_ == nullptr || connection_->endpoint().receiving() || !connection_->endpoint().established()) {
    fail_stream(rdmap::Status::flushed);
    return;
  }
  enter_state(IBV_QPS_SQD);
  enter_phase(Phase::closing);
  leave_stall();
  close_limit_ = sq_.tail();
  flush_receives();
  start_timer(options().close_timeout_ms);
  connection_->transmit();
  stream_progress();
}

void RcQueuePair::close_progress() {
  assert(phase_ == Phase::closing && connection_ != nullptr);
  engine().assert_held();
  Connection& c = *connection_;
  if (c.end() != Connection::End::none) {
    stream_ended();
    return;
  }
  if (c.endpoint().quiescent() && !c.has_output()) {
    c.shut_down();
    if (std::exchange(tells_drained_, false)) context().raise(IBV_EVENT_SQ_DRAINED, handle_);
    // Receives are given back already: a Send that still comes is dropped, with what follows, and the stream ends.
    c.endpoint().stop_waiting();
    // One of them may find a receive, posted just now: the next one has a wait of its own, which is over, too.
    while (c.endpoint().stalled() && !c.endpoint().fault()) {
      c.endpoint().stop_waiting();
      c.resume();
    }
    if (c.endpoint().fault() || c.endpoint().drops_sends()) {
      fail_stream(rdmap::Status::flushed);
      return;
    }
    engine().update(c);
  } else if (c.has_output()) {
    engine().update(c);
  } else if (c.endpoint().stalled()) {
    // The answers to our Reads are behind it, and nothing else is missing.
    c.endpoint().drop_sends();
    c.resume();
    engine().update(c);
    stream_progress();
    return;
  }
  if (c.fin_sent()) flush_posted();
}

void RcQueuePair::disconnect(bool graceful, const StreamObserver* of) {
  engine().run_control([&] {
    engine().assert_held();
    if (of != nullptr && observer_.get() != of) return;
    if (connection_ == nullptr || phase_ == Phase::terminating) return;
    if (graceful && phase_ == Phase::running)
      begin_close();
    else if (!graceful)
      fail_stream(rdmap::Status::flushed);
  });
}

}  // namespace ewarp::verbs
