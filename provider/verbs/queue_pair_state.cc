// The states of a queue pair and of its stream (verbs-semantics.md sections 2, 3 and 5.1).
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "provider/verbs/engine.h"
#include "provider/verbs/log.h"
#include "provider/verbs/options.h"
#include "provider/verbs/queue_pair.h"

namespace ewarp::verbs {
namespace {

const char* name_of(ibv_qp_state s) {
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return static_cast<unsigned>(s) < std::size(kNames) ? kNames[s] : "?";
}

// Which attributes may accompany a transition; those that are not in the table may not be made. On an RNIC the
// connection manager makes RTR and RTS, and rdma_cm asks for fewer attributes than the IB table (verbs-semantics.md
// section 3), so none is demanded; what is not in `rnic` is refused all the same. With AV and DEST_QPN the QP is
// brought up without rdma_cm (bring_up.h). On the twin the IB table holds (section 2): all of ca_required, and of the
// rest ca_optional.
struct Transition {
  ibv_qp_state from, to;
  int rnic;
  int ca_required, ca_optional;
};
constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kPeer = IBV_QP_AV | IBV_QP_DEST_QPN;
constexpr int kRtr = kInit | kPeer | IBV_QP_PATH_MTU | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                     IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH;
constexpr int kRts = kInit | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                     IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_CUR_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH |
                     IBV_QP_PATH_MIG_STATE;
constexpr int kSqd = kRts | IBV_QP_MAX_DEST_RD_ATOMIC;
constexpr int kCaRtr = kPeer | IBV_QP_PATH_MTU | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kCaRtrOptional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int kCaRts = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kCaRtsOptional =
    IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER;
constexpr Transition kTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInit, kInit, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, kInit, 0, kInit},
    {IBV_QPS_INIT, IBV_QPS_RTR, kRtr, kCaRtr, kCaRtrOptional},
    {IBV_QPS_RTR, IBV_QPS_RTS, kRts, kCaRts, kCaRtsOptional},
    {IBV_QPS_RTS, IBV_QPS_RTS, kRts, 0, kCaRtsOptional},
    // On the twin check_mask() has refused these before.
    {IBV_QPS_RTS, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY, 0, 0},
    {IBV_QPS_SQD, IBV_QPS_SQD, kSqd, 0, 0},
};

}  // namespace

void QueuePair::enter_state(ibv_qp_state state) {
  const ibv_qp_state from = state_.exchange(state, std::memory_order_seq_cst);
  if (slot_ != nullptr) slot_->state.store(static_cast<std::uint32_t>(state), std::memory_order_relaxed);
  if (from != state) log::debug("QP {:#08x}: {} -> {}", number_, name_of(from), name_of(state));
}

// 0, or why the transition may not be made with this mask.
int QueuePair::check_mask(ibv_qp_state from, ibv_qp_state to, const ibv_qp_attr& attr, int mask) const {
  if ((mask & IBV_QP_CUR_STATE) != 0 && attr.cur_qp_state != from) return EINVAL;
  if ((mask & IBV_QP_PORT) != 0 && attr.port_num != 1) return EINVAL;
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && attr.pkey_index != 0) return EINVAL;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0 && (attr.qp_access_flags & ~0xffu) != 0) return EINVAL;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attr.max_rd_atomic > kMaxRdAtomic) return EINVAL;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && attr.max_dest_rd_atomic > kMaxRdAtomic) return EINVAL;
  if (from == IBV_QPS_RESET && to == IBV_QPS_ERR) return EINVAL;
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return (mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE)) != 0 ? EINVAL : 0;
  // On an RNIC a graceful close. On IB it halts the send queue, which nobody was seen to use.
  const bool twin = context().device().twin();
  if (twin && to == IBV_QPS_SQD) return EOPNOTSUPP;
  for (const Transition& t : kTransitions) {
    if (t.from != from || t.to != to) continue;
    const int rest = mask & ~IBV_QP_STATE;
    if ((rest & kPeer) != 0 && (rest & kPeer) != kPeer) return EINVAL;
    if ((rest & IBV_QP_PATH_MTU) != 0 && (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > IBV_MTU_4096)) return EINVAL;
    if (!twin) return (rest & ~t.rnic) != 0 ? EINVAL : 0;
    return (rest & t.ca_required) != t.ca_required || (rest & ~(t.ca_required | t.ca_optional)) != 0 ? EINVAL : 0;
  }
  return EINVAL;
}

void QueuePair::apply(const ibv_qp_attr& attr, int mask) {
  if (mask & IBV_QP_ACCESS_FLAGS) {
    access_ = attr.qp_access_flags;
    access_given_ = true;
  }
  // A stream that was there first has the last word.
  if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
    ord_ = connection_ != nullptr ? std::min<std::uint16_t>(attr.max_rd_atomic, ord_) : attr.max_rd_atomic;
  if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) ird_ = attr.max_dest_rd_atomic;
  if (mask & IBV_QP_AV) given_.ah_attr = attr.ah_attr;
  if (mask & IBV_QP_DEST_QPN) given_.dest_qp_num = attr.dest_qp_num;
  if (mask & IBV_QP_PATH_MTU) given_.path_mtu = attr.path_mtu;
  if (mask & IBV_QP_RQ_PSN) given_.rq_psn = attr.rq_psn;
  if (mask & IBV_QP_SQ_PSN) given_.sq_psn = attr.sq_psn;
  if (mask & IBV_QP_TIMEOUT) given_.timeout = attr.timeout;
  if (mask & IBV_QP_RETRY_CNT) given_.retry_cnt = attr.retry_cnt;
  if (mask & IBV_QP_RNR_RETRY) given_.rnr_retry = attr.rnr_retry;
  if (mask & IBV_QP_MIN_RNR_TIMER) given_.min_rnr_timer = attr.min_rnr_timer;
}

int QueuePair::modify(const ibv_qp_attr& attr, int mask) {
  PeerAddress peer;
  const bool by_address = (mask & IBV_QP_STATE) != 0 && attr.qp_state == IBV_QPS_RTR && (mask & kPeer) == kPeer;
  // Looks at the interfaces: not with the engine held.
  const int bad_peer = by_address ? parse_peer(attr, context().device(), &peer) : 0;
  Engine& e = engine();
  e.enter();
  const ibv_qp_state from = state_.load(std::memory_order_relaxed);
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : from;
  int rc = 0;
  // rdma_disconnect() asks for SQD whatever happened before; there is nothing left to close then.
  const bool closed_already = to == IBV_QPS_SQD && (from == IBV_QPS_ERR || from == IBV_QPS_SQD) &&
                              (mask & ~IBV_QP_STATE) == 0;
  if (!closed_already) {
    // Without STATE only attributes that the present state lets change.
    if ((mask & IBV_QP_STATE) == 0 && !context().device().twin() &&
        (from == IBV_QPS_RESET || from == IBV_QPS_ERR || from == IBV_QPS_RTR))
      rc = (mask & ~kRts) != 0 || from == IBV_QPS_RESET ? EINVAL : check_mask(IBV_QPS_RTS, IBV_QPS_RTS, attr, mask);
    else
      rc = check_mask(from, to, attr, mask);
    // The stream makes RTS; an application cannot, unless it said who the peer is.
    if (rc == 0 && from == IBV_QPS_RTR && to == IBV_QPS_RTS && bring_up_ == nullptr) rc = EINVAL;
    if (rc == 0) rc = bad_peer;
    if (rc == 0) {
      apply(attr, mask);
      switch (to) {
        case IBV_QPS_RESET: reset_queues(); break;
        case IBV_QPS_ERR: fail_stream(rdmap::Status::flushed); break;
        case IBV_QPS_SQD:
          if (from == IBV_QPS_RTS) begin_close();
          break;
        default:
          enter_state(to);
          if (by_address) rc = start_bring_up(peer);
      }
    }
  }
  e.leave();
  return rc;
}

int QueuePair::query(ibv_qp_attr& attr, ibv_qp_init_attr& init) {
  attr = given_;
  attr.qp_state = attr.cur_qp_state = state_.load(std::memory_order_relaxed);
  ibv_port_attr port{};
  if (attr.path_mtu == 0 && context().device().query_port(1, &port, sizeof port) == 0) attr.path_mtu = port.active_mtu;
  attr.path_mig_state = IBV_MIG_MIGRATED;
  attr.qp_access_flags = access_;
  attr.cap = cap_;
  attr.pkey_index = pkey_index_;
  attr.port_num = port_;
  attr.max_rd_atomic = static_cast<std::uint8_t>(std::min<unsigned>(ord_, 255));
  attr.max_dest_rd_atomic = static_cast<std::uint8_t>(std::min<unsigned>(ird_, 255));
  init.qp_context = qp_context_;
  init.cap = cap_;
  init.qp_type = type_;
  init.sq_sig_all = signal_all_ ? 1 : 0;
  return 0;
}

void QueuePair::get_read_limits(std::uint16_t* ird, std::uint16_t* ord) {
  *ird = ird_;
  *ord = ord_;
}

int QueuePair::attach(int fd, const mpa::StreamParams& params, std::shared_ptr<StreamObserver> observer) {
  Engine& e = engine();
  e.enter();
  const ibv_qp_state from = state_.load(std::memory_order_relaxed);
  if (destroyed_ || connection_ != nullptr || bring_up_ != nullptr ||
      (from != IBV_QPS_RESET && from != IBV_QPS_INIT && from != IBV_QPS_RTR)) {
    e.leave();
    ::close(fd);
    return EINVAL;
  }
  observer_ = std::move(observer);
  ord_ = params.ord;
  enter_state(IBV_QPS_RTS);
  run_stream(fd, params);
  e.leave();
  return 0;
}

void QueuePair::run_stream(int fd, const mpa::StreamParams& params) {
  Engine& e = engine();
  ird_ = params.ird;
  extensions_ = params.extensions;
  stalled_ = false;
  quiet_ = false;
  published_ = {};
  published_tx_ = published_rx_ = 0;
  established_told_ = false;
  phase_ = Phase::running;
  connection_ = std::make_shared<Connection>(e, *this, fd, params);
  if (slot_ != nullptr) {
    strncpy(slot_->peer, connection_->peer().c_str(), sizeof slot_->peer - 1);
    slot_->peer[sizeof slot_->peer - 1] = 0;
    slot_->peer_number.store(bring_up_ != nullptr ? bring_up_->peer().number : 0, std::memory_order_relaxed);
  }
  stats::add(context().device().counters().connections);
  log::debug("QP {:#08x}: stream to {}: crc {}, markers {}/{}, extensions {}, ird {}, ord {}, {}", number_,
             connection_->peer(), params.crc, params.tx_markers, params.rx_markers, params.extensions, params.ird,
             params.ord, params.initiator ? "initiator" : "responder");
  e.add(*connection_);
  if (!connection_->endpoint().established()) start_timer(options().rtr_timeout_ms);
  serve();
  if (connection_ != nullptr && !params.initiator && !params.peer_to_peer && options().responder_wait_ms > 0)
    start_timer(options().responder_wait_ms);
}

void QueuePair::notify_established() {
  established_told_ = true;
  if (phase_ == Phase::running) stop_timer();
  if (bring_up_ != nullptr) bring_up_->established();
  if (observer_ != nullptr) engine().post([o = observer_] { o->on_established(); });
}

void QueuePair::serve() {
  if (connection_ == nullptr) {
    if (peer_left_ && sq_.head() != sq_.tail())
      fail_stream(rdmap::Status::connection_lost);
    else
      flush_posted();
    return;
  }
  if (stalled_.load(std::memory_order_relaxed) && has_receive()) {
    // If the message behind this one has to wait too, that is a wait of its own: check_stall() begins it.
    stop_timer();
    leave_stall();
    connection_->resume();
    engine().rearm();
  }
  if (engine().may_send(*this)) connection_->transmit();
  stream_progress();
}

// A Send waits for a receive: the stream is not read until one is posted, or the time is up.
void QueuePair::check_stall() {
  const bool now = connection_->endpoint().stalled();
  if (now == stalled_.load(std::memory_order_relaxed)) return;
  if (!now) {
    leave_stall();
    stop_timer();
    engine().rearm();
    return;
  }
  stalled_.exchange(true, std::memory_order_seq_cst);
  start_timer(options().rnr_wait_ms);
  if (srq_ != nullptr) {
    srq_->wait(*this);
    return;
  }
  // Pairs with post_recv(), which publishes, then looks at stalled_.
  if (has_receive()) engine().kick(*this);
}

// True: it was stalled.
bool QueuePair::leave_stall() {
  if (!stalled_.exchange(false, std::memory_order_seq_cst)) return false;
  if (srq_ != nullptr) srq_->forget(*this);
  return true;
}

// Work posted after the flush.
void QueuePair::flush_posted() {
  const ibv_qp_state s = state_.load(std::memory_order_seq_cst);
  if (s != IBV_QPS_ERR && s != IBV_QPS_SQD) return;
  if (sq_.head() != sq_.tail()) flush_sends(rdmap::Status::flushed);
  if (rq_.head() != rq_.tail()) flush_receives();
}

void QueuePair::stream_progress() {
  if (connection_ == nullptr) return;
  Connection& c = *connection_;
  rdmap::Endpoint& endpoint = c.endpoint();
  if (endpoint.counters.rx_write_segments != published_.rx_write_segments) send_cq_->written(quiet_);
  publish_counters();
  if (!established_told_ && endpoint.established()) notify_established();
  if (phase_ == Phase::running) check_stall();
  if (c.end() != Connection::End::none) {
    stream_ended();
  } else if (phase_ == Phase::terminating) {
    finish_terminate();
  } else if (endpoint.terminated()) {
    log::debug("QP {:#08x}: peer terminated the stream: {}", number_, rdmap::to_string(endpoint.terminated()->fault));
    raise_for(endpoint.terminated()->fault);
    fail_stream(rdmap::Status::flushed);
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
    engine().wait_writable(c);
  }
}

// An error that the peer is told of: what is being sent is finished, the Terminate follows, then the work is flushed
// (RFC 5040 section 7.1).
void QueuePair::stream_fault() {
  if (phase_ == Phase::closing) {  // both ends are done with each other
    fail_stream(rdmap::Status::flushed);
    return;
  }
  if (wait_again()) return;
  const Fault f = *connection_->endpoint().fault();
  log::info("QP {:#08x}: stream error {}, peer {}", number_, rdmap::to_string(f), connection_->peer());
  enter_state(IBV_QPS_ERR);
  raise_for(f);
  phase_ = Phase::terminating;
  start_timer(options().close_timeout_ms);
  connection_->transmit();
  publish_counters();
  finish_terminate();
}

void QueuePair::finish_terminate() {
  Connection& c = *connection_;
  if (c.end() == Connection::End::none && c.has_output()) {
    c.transmit();
    if (c.end() == Connection::End::none && c.has_output()) {
      engine().wait_writable(c);
      return;
    }
  }
  fail_stream(rdmap::Status::flushed);
}

// Ends the stream and flushes all work; `first` is the status of the oldest unfinished send.
void QueuePair::fail_stream(rdmap::Status first) {
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

void QueuePair::raise_for(const Fault& f) {
  ibv_event_type type = IBV_EVENT_QP_FATAL;
  if ((f.layer == Layer::rdmap && f.type == 1) || (f.layer == Layer::ddp && f.type == 1))
    type = IBV_EVENT_QP_ACCESS_ERR;
  else if ((f.layer == Layer::ddp && f.type == 2) || f == fault::kRdmapOpcode || f == fault::kRdmapUnspecified)
    type = IBV_EVENT_QP_REQ_ERR;
  context().raise(type, handle_);
}

void QueuePair::drop_stream(bool drain) {
  connection_->endpoint().abandon();
  connection_->drop_output();
  end_stream(drain);
}

// The connection's memory goes away when the pass is over. drain: see Engine::drain_and_close().
void QueuePair::end_stream(bool drain) {
  publish_counters();
  stop_timer();
  leave_stall();
  Engine& e = engine();
  const bool reached = connection_->end() == Connection::End::none;
  e.remove(*connection_);
  if (drain && reached)
    e.drain_and_close(connection_->release_fd());
  else
    e.close_now(connection_->release_fd());
  e.bury(std::exchange(connection_, nullptr));
  phase_ = Phase::none;
  stats::add(context().device().counters().disconnects);
  if (auto o = std::exchange(observer_, nullptr)) e.post([o] { o->on_disconnected(); });
}

void QueuePair::stream_ended() {
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
      log::info("QP {:#08x}: memory of a request was taken away while it was sent", number_);
      first = rdmap::Status::local_protection;
      break;
    case Connection::End::none: break;
  }
  fail_stream(first);
}

// Graceful: sends that were posted go out, then FIN; receives are given back at once (a server that waits for its flush
// would hang otherwise).
void QueuePair::begin_close() {
  if (connection_ == nullptr || connection_->endpoint().receiving() || !connection_->endpoint().established()) {
    fail_stream(rdmap::Status::flushed);
    return;
  }
  enter_state(IBV_QPS_SQD);
  phase_ = Phase::closing;
  leave_stall();
  close_limit_ = sq_.tail();
  flush_receives();
  start_timer(options().close_timeout_ms);
  connection_->transmit();
  close_progress();
}

void QueuePair::close_progress() {
  Connection& c = *connection_;
  if (c.end() != Connection::End::none) {
    stream_ended();
    return;
  }
  if (c.endpoint().quiescent() && !c.has_output()) {
    c.shut_down();
    // Receives are given back already: a Send that still comes is dropped, with what follows, and the stream ends.
    c.endpoint().stop_waiting();
    if (c.endpoint().stalled()) c.resume();
    if (c.endpoint().fault()) {
      fail_stream(rdmap::Status::flushed);
      return;
    }
  } else if (c.has_output()) {
    engine().wait_writable(c);
  }
  if (c.fin_sent()) flush_posted();
}

void QueuePair::disconnect(bool graceful) {
  Engine& e = engine();
  e.enter();
  if (connection_ != nullptr && phase_ != Phase::terminating) {
    if (graceful && phase_ == Phase::running)
      begin_close();
    else if (!graceful)
      fail_stream(rdmap::Status::flushed);
  }
  e.leave();
}

// To RESET: no completion of this QP is seen any more.
void QueuePair::reset_queues() {
  // First: posters look at the state with the queue locked, so nothing is posted behind what is dropped here.
  enter_state(IBV_QPS_RESET);
  stop_bring_up();
  if (connection_ != nullptr) {
    drop_stream(true);
  }
  {
    std::lock_guard guard(sq_.lock);
    started_ = sq_.tail();
    sq_.retire(started_);
  }
  {
    std::lock_guard guard(rq_.lock);
    rq_.retire(rq_.tail());
  }
  overflowed_ = local_failed_ = false;
  last_receive_told_ = false;
  given_ = {};
  send_cq_->purge(number_);
  recv_cq_->purge(number_);
}

void QueuePair::start_timer(unsigned milliseconds) {
  stop_timer();
  timer_ = engine().add_timer(
      Reactor::Clock::now() + std::chrono::milliseconds(milliseconds),
      with_engine(weak_from_this(), [generation = ++timer_generation_](QueuePair& qp) { qp.on_timer(generation); }));
}

void QueuePair::stop_timer() { engine().cancel_timer(std::exchange(timer_, 0)); }

void QueuePair::on_timer(unsigned generation) {
  // The timer may have been stopped, or started anew, while it was on its way.
  if (timer_ == 0 || generation != timer_generation_ || connection_ == nullptr) return;
  timer_ = 0;
  if (phase_ == Phase::running && stalled_.load(std::memory_order_relaxed)) {
    connection_->endpoint().stop_waiting();
    connection_->resume();
    stream_progress();
  } else if (phase_ == Phase::running && connection_->endpoint().established()) {
    connection_->endpoint().speak_first();
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
