// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The stream of a queue pair: from its hand-over to its end, well or not (docs/design/verbs.md).
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <cassert>

#include "provider/base/log.h"
#include "provider/base/options.h"
#include "provider/engine/engine.h"
#include "provider/startup/linger.h"
#include "provider/verbs/rc/rc_queue_pair.h"
#include "provider/verbs/write_hold.h"

namespace ewarp::verbs {
namespace {

// For the peer's background thread to take the memory: it may be busy, or its process stopped.
constexpr auto kAgreement = std::chrono::seconds(1);

}  // namespace

// Whatever it is at, a stream can end.
constexpr bool RcQueuePair::allowed(Phase from, Phase to) {
  switch (to) {
    case Phase::none:
      return from != Phase::none;
    case Phase::running:
      return from == Phase::none;
    case Phase::closing:
    case Phase::terminating:
      return from == Phase::running;
  }
  return false;
}

void RcQueuePair::enter_phase(Phase next) {
  assert(engine().held() && allowed(phase_, next));
  phase_ = next;
}

int RcQueuePair::attach(std::unique_ptr<llp::Stream> stream, const mpa::StreamParams& params,
                        std::shared_ptr<StreamObserver> observer) {
  Engine& e = engine();
  if (const int error = e.start()) return error;
  int rc = 0;
  e.run_control([&] {
    engine().assert_held();
    rc = attach_now(stream, params, std::move(observer));
  });
  return rc;
}

// Takes the stream if it succeeds.
int RcQueuePair::attach_now(std::unique_ptr<llp::Stream>& stream, const mpa::StreamParams& params,
                            std::shared_ptr<StreamObserver> observer) {
  const ibv_qp_state from = state_.load(std::memory_order_relaxed);
  if (destroyed_ || connection_ != nullptr || bring_up_ != nullptr ||
      (from != IBV_QPS_RESET && from != IBV_QPS_INIT && from != IBV_QPS_RTR))
    return EINVAL;
  observer_ = std::move(observer);
  ord_ = params.ord;
  enter_state(IBV_QPS_RTS);
  run_stream(std::move(stream), params);
  return 0;
}

void RcQueuePair::run_stream(std::unique_ptr<llp::Stream> stream, const mpa::StreamParams& params) {
  assert(connection_ == nullptr && stream != nullptr);
  Engine& e = engine();
  e.assert_held();
  ird_ = params.ird;
  extensions_ = params.extensions;
  stalled_ = false;
  quiet_ = false;
  published_ = {};
  established_told_ = observer_told_ = false;
  enter_phase(Phase::running);
  connection_ = std::make_shared<Connection>(e, *this, std::max(sq_.sges(), rq_.sges()), std::move(stream), params);
  connection_->limit_silence(silence_limit());
  if (srq_ != nullptr) srq_->half_messages().join(*this);
  if (slot_ != nullptr) {
    strncpy(slot_->peer, connection_->peer().c_str(), sizeof slot_->peer - 1);
    slot_->peer[sizeof slot_->peer - 1] = 0;
    slot_->local.store(0, std::memory_order_relaxed);
    slot_->peer_number.store(bring_up_ != nullptr ? bring_up_->peer().number : 0, std::memory_order_relaxed);
  }
  stats::add(context().device().counters().connections);
  log::debug("QP {:#08x}: stream to {}: crc {}, markers {}/{}, extensions {}, ird {}, ord {}, {}", number_,
             connection_->peer(), params.crc, params.tx_markers, params.rx_markers, params.extensions, params.ird,
             params.ord, params.initiator ? "initiator" : "responder");
  if (e.add(*connection_) != 0) connection_->broken();
  if (connection_->agreeing())
    connection_->agree_until(e.add_timer(Reactor::Clock::now() + kAgreement,
                                         with_engine(e, connection_, [](Connection& c) { c.stop_agreeing(); })));
  if (!connection_->endpoint().established()) start_timer(options().rtr_timeout_ms);
  serve();
  if (connection_ == nullptr || phase_ != Phase::running) return;
  if (params.initiator) {
    // An EtherWARP, which consents to our extensions, hears the first one.
    rtr_repeats_ = !params.extensions && connection_->endpoint().rtr_is_repeatable() ? kRtrRepeats : 0;
    rtr_wait_ms_ = options().rtr_repeat_ms;
    await_answer();
  } else if (!params.peer_to_peer && options().responder_wait_ms > 0) {
    start_timer(options().responder_wait_ms);
  }
}

void RcQueuePair::stream_is_local() {
  engine().assert_held();
  local_.store(true, std::memory_order_relaxed);
  if (slot_ != nullptr) slot_->local.store(1, std::memory_order_relaxed);
  stats::add(context().device().counters().local_streams);
}

void RcQueuePair::notify_established() {
  established_told_ = true;
  if (phase_ == Phase::running) stop_timer();
  if (bring_up_ != nullptr) bring_up_->established();
}

// Once its first octets have left: a program that hears it turns to its next connection, and none of that may reach the
// peer before them.
void RcQueuePair::tell_observer() {
  engine().assert_held();
  if (observer_told_ || !established_told_ || connection_->agreeing()) return;
  observer_told_ = true;
  if (observer_ != nullptr) engine().post([o = observer_] { o->on_established(); });
}

// What a pass of the application has received was served at once, and Sends that have come whole are seen by who polls.
// For Reads and Writes that only the background thread has met a peer may wait, or a program that looks at its memory;
// and for room in a socket.
void RcQueuePair::tell_driver(const Tally& news) {
  engine().assert_held();
  const rdmap::EndpointCounters& n = news.counters;
  const bool received = news.rx_octets != 0, sent = news.tx_octets != 0;
  const bool others = n.rx_messages != n.rx_sends || n.rx_reads != 0 || n.rx_write_segments != 0;
  if (engine().in_background() && (others || sent || (received && n.rx_sends == 0)))
    engine().came(true);
  else if (others || n.rx_sends != 0)
    engine().came(false);
}

void RcQueuePair::stream_progress() {
  engine().assert_held();
  if (connection_ == nullptr) return;
  Connection& c = *connection_;
  rdmap::Endpoint& endpoint = c.endpoint();
  const Tally news = publish_counters();
  if (news.counters.rx_write_segments != 0) send_cq_->written(quiet_);
  if (hold_ != nullptr && news.counters.rx_messages != 0) hold_->heard();
  tell_driver(news);
  if (!established_told_ && endpoint.established()) notify_established();
  tell_observer();
  if (phase_ == Phase::running) check_stall();
  // First: an end behind the peer's Terminate says less than it.
  if (endpoint.terminated()) {
    log::debug("QP {:#08x}: peer terminated the stream: {}", number_, rdmap::to_string(endpoint.terminated()->fault));
    raise_for(endpoint.terminated()->fault);
    fail_stream(rdmap::Status::flushed);
  } else if (c.end() != Connection::End::none) {
    stream_ended();
  } else if (phase_ == Phase::terminating) {
    finish_terminate();
  } else if (endpoint.fault()) {
    stream_fault();
  } else if (phase_ == Phase::closing) {
    close_progress();
  } else if (overflowed_) {
    context().raise(IBV_EVENT_QP_FATAL, handle_);
    fail_stream(rdmap::Status::flushed);
  } else if (local_failed_) {
    fail_stream(rdmap::Status::flushed);
  } else if (c.has_output()) {
    engine().update(c);
  }
}

// An error that the peer is told of: what is being sent is finished, the Terminate follows, then the work is flushed
// (RFC 5040 section 6.2.1).
void RcQueuePair::stream_fault() {
  engine().assert_held();
  if (phase_ == Phase::closing) {  // both ends are done with each other
    fail_stream(rdmap::Status::flushed);
    return;
  }
  if (wait_again()) return;
  const Fault f = *connection_->endpoint().fault();
  log::info("QP {:#08x}: stream error {}, peer {}", number_, rdmap::to_string(f), connection_->peer());
  enter_state(IBV_QPS_ERR);
  raise_for(f);
  enter_phase(Phase::terminating);
  leave_stall();  // nothing is received any more
  start_timer(options().close_timeout_ms);
  connection_->transmit();
  publish_counters();
  finish_terminate();
}

void RcQueuePair::finish_terminate() {
  engine().assert_held();
  Connection& c = *connection_;
  if (c.end() == Connection::End::none && c.has_output()) {
    c.transmit();
    if (c.end() == Connection::End::none && c.has_output()) {
      engine().update(c);
      return;
    }
  }
  fail_stream(rdmap::Status::flushed);
}

void RcQueuePair::raise_for(const Fault& f) {
  ibv_event_type type = IBV_EVENT_QP_FATAL;
  if ((f.layer == Layer::rdmap && f.type == 1) || (f.layer == Layer::ddp && f.type == 1))
    type = IBV_EVENT_QP_ACCESS_ERR;
  else if ((f.layer == Layer::ddp && f.type == 2) || f == fault::kRdmapOpcode || f == fault::kRdmapUnspecified)
    type = IBV_EVENT_QP_REQ_ERR;
  context().raise(type, handle_);
}

// Ends the stream and flushes all work; `first` is the status of the oldest unfinished send.
void RcQueuePair::fail_stream(rdmap::Status first) {
  engine().assert_held();
  stop_bring_up();
  enter_state(IBV_QPS_ERR);
  if (connection_ != nullptr) {
    connection_->endpoint().abandon();
    connection_->drop_output();
  }
  flush_sends(first);
  flush_receives();
  if (srq_ != nullptr && !std::exchange(last_receive_told_, true))
    context().raise(IBV_EVENT_QP_LAST_WQE_REACHED, handle_);
  if (connection_ != nullptr) end_stream(true);
}

void RcQueuePair::drop_stream(bool drain) {
  assert(connection_ != nullptr);
  connection_->endpoint().abandon();
  connection_->drop_output();
  end_stream(drain);
}

// The connection's memory goes away when the pass is over. drain: what was sent still arrives (linger()).
void RcQueuePair::end_stream(bool drain) {
  publish_counters();
  stop_timer();
  leave_stall();
  if (srq_ != nullptr) srq_->half_messages().leave(*this);
  Engine& e = engine();
  e.assert_held();
  const bool reached = connection_->end() == Connection::End::none;
  e.remove(*connection_);
  if (drain && reached)
    linger(e, connection_->release_stream());
  else
    end_now(e, connection_->release_stream());
  e.bury(std::exchange(connection_, nullptr));
  enter_phase(Phase::none);
  stats::add(context().device().counters().disconnects);
  if (auto o = std::exchange(observer_, nullptr)) e.post([o] { o->on_disconnected(); });
}

void RcQueuePair::stream_ended() {
  engine().assert_held();
  if (wait_again() || peer_left()) return;
  Connection& c = *connection_;
  rdmap::Status first = rdmap::Status::flushed;
  switch (c.end()) {
    case Connection::End::peer_closed:
      // Without rdma_cm there is no disconnecting: to its sends such a peer is gone.
      if (bring_up_ != nullptr) first = rdmap::Status::connection_lost;
      break;
    case Connection::End::peer_closed_early:
    case Connection::End::lost:
      if (phase_ != Phase::running) break;  // both ends were done with each other
      log::info("QP {:#08x}: connection to {} lost", number_, c.peer());
      first = rdmap::Status::connection_lost;
      break;
    case Connection::End::local_memory:
      log::info("QP {:#08x}: memory was taken away while it was sent", number_);
      blame_for_memory();
      break;
    case Connection::End::none:
      break;
  }
  fail_stream(first);
}

}  // namespace ewarp::verbs
