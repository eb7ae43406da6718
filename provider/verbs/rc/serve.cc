// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a queue pair does when it is served: new work, a Send that waits for its receive, timers.
#include <utility>

#include "provider/base/log.h"
#include "provider/base/options.h"
#include "provider/engine/engine.h"
#include "provider/verbs/rc/rc_queue_pair.h"

namespace ewarp::verbs {

void RcQueuePair::broken() noexcept {
  engine().assert_held();
  if (connection_ != nullptr) connection_->broken();
}

void RcQueuePair::serve() {
  engine().assert_held();
  if (connection_ == nullptr) {
    if (peer_left_)
      send_to_nobody();
    else
      flush_posted();
    return;
  }
  if (phase_ == Phase::running && stalled_.load(std::memory_order_relaxed) && has_receive()) {
    // If the message behind this one has to wait too, that is a wait of its own: check_stall() begins it.
    stop_timer();
    leave_stall();
    connection_->resume();
    engine().update(*connection_);
  }
  if (engine().may_send(*this)) {
    const std::uint64_t before = connection_->tx_octets;
    connection_->transmit();
    engine().sent(connection_->tx_octets - before);
  }
  stream_progress();
}

// A Send waits for a receive: the stream is not read until one is posted, or the time is up.
void RcQueuePair::check_stall() {
  engine().assert_held();
  const bool now = connection_->endpoint().stalled();
  if (now == stalled_.load(std::memory_order_relaxed)) return;
  if (!now) {
    leave_stall();
    stop_timer();
    engine().update(*connection_);
    return;
  }
  stalled_.exchange(true, std::memory_order_seq_cst);
  engine().update(*connection_);
  start_timer(options().rnr_wait_ms);
  stalled_since_ = Reactor::Clock::now();
  answers_missed_ = connection_->endpoint().awaits_answers();
  if (srq_ != nullptr) {
    srq_->wait(*this);
    return;
  }
  // Pairs with post_recv(), which publishes, then looks at stalled_.
  if (has_receive()) engine().kick(*this);
}

// True: it was stalled.
bool RcQueuePair::leave_stall() {
  engine().assert_held();
  if (!stalled_.exchange(false, std::memory_order_seq_cst)) return false;
  if (srq_ != nullptr) srq_->forget(*this);
  return true;
}

// True: the time of the Send that waits is up, and it waits on.
bool RcQueuePair::waits_on() {
  engine().assert_held();
  if (options().rnr_wait_ms == 0) return false;  // nobody waits
  // Answers to our Reads stand behind it: who waits for them may post the receive only when they are there.
  const bool missed = std::exchange(answers_missed_, connection_->endpoint().awaits_answers()) && answers_missed_;
  const bool patient = !missed && sender_is_seen();
  if (!patient && !waits_for_half_messages()) return false;
  start_timer(options().rnr_wait_ms);
  return true;
}

// The program lets Sends wait, and the end of this one's sender would be seen, though nothing is read.
bool RcQueuePair::sender_is_seen() const {
  engine().assert_held();
  return observer_ != nullptr && observer_->lets_sends_wait() && connection_->peer_end() == llp::PeerEnd::open;
}

// Others hold receives of the queue, for messages that move on or end soon.
bool RcQueuePair::waits_for_half_messages() const {
  engine().assert_held();
  return srq_ != nullptr && Reactor::Clock::now() - stalled_since_ < srq_->half_messages().patience();
}

std::optional<rdmap::HalfMessage> RcQueuePair::half_message() const {
  engine().assert_held();
  return connection_ != nullptr && phase_ == Phase::running ? connection_->endpoint().half_message() : std::nullopt;
}

void RcQueuePair::end_half_message() {
  engine().assert_held();
  if (!half_message()) return;
  log::info("QP {:#08x}: a message of {} stands still, and others need its receive: the connection ends", number_,
            connection_->peer());
  stats::add(context().device().counters().half_messages);
  connection_->endpoint().fail(fault::kDdpNoBuffer);
  stream_progress();
}

// Work posted after the flush.
void RcQueuePair::flush_posted() {
  engine().assert_held();
  const ibv_qp_state s = state_.load(std::memory_order_seq_cst);
  if (s != IBV_QPS_ERR && s != IBV_QPS_SQD) return;
  if (sq_.head() != sq_.tail()) flush_sends(rdmap::Status::flushed);
  if (rq_.head() != rq_.tail()) flush_receives();
}

// Linux siw as responder may never look at an RTR that comes as soon as its Reply is sent, until more octets come.
void RcQueuePair::await_answer() {
  engine().assert_held();
  if (rtr_repeats_ == 0 || rtr_wait_ms_ == 0 || connection_->rx_octets != 0) return;
  --rtr_repeats_;
  start_timer(std::exchange(rtr_wait_ms_, 2 * rtr_wait_ms_));
}

void RcQueuePair::repeat_rtr() {
  engine().assert_held();
  if (connection_->rx_octets != 0 || !connection_->endpoint().repeat_rtr()) return;
  log::debug("QP {:#08x}: nothing heard of {} yet: the RTR once more", number_, connection_->peer());
  await_answer();
}

void RcQueuePair::start_timer(unsigned milliseconds) {
  stop_timer();
  timer_ =
      engine().add_timer(Reactor::Clock::now() + std::chrono::milliseconds(milliseconds),
                         with_engine(engine(), weak_from_this(), [generation = ++timer_generation_](RcQueuePair& qp) {
                           qp.engine().assert_held();
                           qp.on_timer(generation);
                         }));
}

void RcQueuePair::stop_timer() {
  engine().cancel_timer(std::exchange(timer_, 0));
}

void RcQueuePair::on_timer(unsigned generation) {
  engine().assert_held();
  // The timer may have been stopped, or started anew, while it was on its way.
  if (timer_ == 0 || generation != timer_generation_) return;
  timer_ = 0;
  if (connection_ == nullptr) {
    if (peer_left_) fail_stream(rdmap::Status::connection_lost);
    return;
  }
  if (phase_ == Phase::running && stalled_.load(std::memory_order_relaxed)) {
    if (waits_on()) return;
    connection_->endpoint().stop_waiting();
    // The message may get its receive all the same, posted just now or before its last octets come. If the one behind
    // it has to wait, check_stall() begins that wait.
    leave_stall();
    connection_->resume();
    engine().update(*connection_);
    stream_progress();
  } else if (phase_ == Phase::running && connection_->endpoint().established()) {
    connection_->endpoint().speak_first();
    repeat_rtr();
    serve();
  } else if (wait_again()) {
    return;
  } else if (phase_ == Phase::running) {
    log::info("QP {:#08x}: peer {} sent nothing after the start-up", number_, connection_->peer());
    fail_stream(rdmap::Status::connection_lost);
  } else {
    fail_stream(rdmap::Status::flushed);
  }
}

}  // namespace ewarp::verbs
