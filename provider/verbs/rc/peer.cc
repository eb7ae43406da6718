// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Queue pairs that are told their peer by ibv_modify_qp() (docs/user/byaddr.md): the QP's side of bring_up.h.
#include <algorithm>

#include "provider/base/log.h"
#include "provider/base/options.h"
#include "provider/engine/engine.h"
#include "provider/verbs/rc/rc_queue_pair.h"

namespace ewarp::verbs {

bool RcQueuePair::may_be_told_its_peer() const {
  engine().assert_held();
  const ibv_qp_state s = state_.load(std::memory_order_relaxed);
  return bring_up_ == nullptr && connection_ == nullptr && (s == IBV_QPS_RESET || s == IBV_QPS_INIT);
}

BringUp* RcQueuePair::bring_up() const {
  engine().assert_held();
  return bring_up_.get();
}

std::uint32_t RcQueuePair::send_psn() const {
  engine().assert_held();
  return given_.sq_psn;
}

int RcQueuePair::start_bring_up(const PeerAddress& peer) {
  engine().assert_held();
  ord_ = kMaxRdAtomic;                 // until RTS says less
  extensions_ = options().extensions;  // the peer is one of us; known for certain when the stream stands
  // A stream that starts and fails at once takes bring_up_ away while it is at work.
  const auto b = bring_up_ = std::make_shared<BringUp>(engine(), *this, number_, peer);
  const int rc = b->start();
  if (rc == 0) {
    sends_in_rtr_ = bring_up_ != nullptr;
    return 0;
  }
  stop_bring_up();
  enter_state(IBV_QPS_INIT);
  return rc;
}

void RcQueuePair::stop_bring_up() {
  engine().assert_held();
  if (std::exchange(peer_left_, false)) stop_timer();
  sends_in_rtr_ = false;
  if (const auto b = std::exchange(bring_up_, nullptr)) b->stop();
}

// In RTR the QP stays there: it is the application that makes RTS.
void RcQueuePair::take_stream(std::unique_ptr<llp::Stream> stream, const mpa::StreamParams& params) {
  engine().assert_held();
  ord_ = std::min<std::uint16_t>(ord_, params.ord);
  run_stream(std::move(stream), params);
}

void RcQueuePair::bring_up_failed(const std::string& why) {
  engine().assert_held();
  log::error("QP {:#08x}: {}", number_, why);
  stats::add(context().device().counters().connect_failures);
  context().raise(IBV_EVENT_QP_FATAL, handle_);
  fail_stream(rdmap::Status::connection_lost);
}

// The initiator left, or was silent, before its first message: nothing was lost, and it will come again.
bool RcQueuePair::wait_again() {
  engine().assert_held();
  if (bring_up_ == nullptr || established_told_ || phase_ != Phase::running) return false;
  drop_stream(false);
  bring_up_->wait_again();
  return true;
}

// The peer's QP is gone, between two messages. On InfiniBand one would not hear of it, and programs leave without a
// word when both sides have what they wanted: receives stay posted, and sends fail when they have been tried long
// enough.
bool RcQueuePair::peer_left() {
  engine().assert_held();
  if (bring_up_ == nullptr || phase_ != Phase::running || connection_->end() != Connection::End::peer_closed)
    return false;
  log::info("QP {:#08x}: its peer {} has left", number_, connection_->peer());
  drop_stream(true);
  peer_left_ = true;
  send_to_nobody();
  // Pairs with post_send(), which publishes, then kicks: what was posted meanwhile is served by the holder's leave().
  return true;
}

// For as long as InfiniBand's local ACK timeout allows for all tries: a program that is done by then has lost nothing.
void RcQueuePair::send_to_nobody() {
  engine().assert_held();
  if (sq_.head() == sq_.tail() || timer_ != 0) return;
  const std::chrono::milliseconds tries = retry_time();
  if (tries.count() == 0)
    fail_stream(rdmap::Status::connection_lost);
  else
    start_timer(static_cast<unsigned>(tries.count()));
}

}  // namespace ewarp::verbs
