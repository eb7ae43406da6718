// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Creation and the end of queue pairs, and what is counted of a stream.
#include "provider/verbs/rc/rc_queue_pair.h"

#include <endian.h>
#include <errno.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <unordered_map>

#include "llp/mutex.h"
#include "provider/base/log.h"
#include "provider/base/options.h"
#include "provider/engine/engine.h"
#include "provider/verbs/qp_numbers.h"
#include "provider/verbs/requests.h"
#include "provider/verbs/write_hold.h"

namespace ewarp::verbs {
namespace {

struct Registry {
  llp::Mutex mutex;
  std::unordered_map<std::uint32_t, std::weak_ptr<RcQueuePair>> pairs EWARP_GUARDED_BY(mutex);
};

Registry& registry() {
  static Registry* r = new Registry;
  return *r;
}

}  // namespace

int create_rc_qp(Pd& pd, ibv_qp_init_attr& init, CompletionQueue* send_cq, CompletionQueue* recv_cq,
                 std::shared_ptr<QueuePair>* out, SharedReceiveQueue* srq) {
  if (init.qp_type != IBV_QPT_RC) return EOPNOTSUPP;
  if (const int rc = RcQueuePair::check_caps(init.cap, send_cq, recv_cq, srq)) return rc;
  const std::uint32_t number = qp_numbers().take();
  auto qp = std::make_shared<RcQueuePair>(pd, send_cq, recv_cq, srq, number);
  if (const int rc = qp->create(init)) {
    qp_numbers().give(number);
    return rc;
  }
  Registry& r = registry();
  const llp::Guard guard(r.mutex);
  r.pairs[number] = qp;
  *out = std::move(qp);
  return 0;
}

std::shared_ptr<QueuePair> find_qp(std::uint32_t number) {
  Registry& r = registry();
  const llp::Guard guard(r.mutex);
  const auto it = r.pairs.find(number);
  return it == r.pairs.end() ? nullptr : it->second.lock();
}

void queue_pairs_before_fork() EWARP_NO_LOCK_ANALYSIS {
  registry().mutex.lock();
}

void queue_pairs_after_fork() EWARP_NO_LOCK_ANALYSIS {
  registry().mutex.unlock();
}

void queue_pairs_forget_in_child() {
  registry().mutex.renew_in_child();
}

RcQueuePair::RcQueuePair(Pd& pd, CompletionQueue* send_cq, CompletionQueue* recv_cq, SharedReceiveQueue* srq,
                         std::uint32_t number)
    : QueuePairBase(pd, send_cq, recv_cq, srq, number, IBV_QPT_RC), ird_(kMaxRdAtomic), ord_(kMaxRdAtomic) {
  if (const unsigned us = options().write_hold_us; us != 0)
    hold_ = std::make_unique<WriteHold>(std::chrono::microseconds(us));
}

RcQueuePair::~RcQueuePair() {
  destroy();
}

int RcQueuePair::create(ibv_qp_init_attr& init) {
  ibv_qp_cap& c = init.cap;
  // Some room for inline data is always there: rsockets asks for none and then needs 4 octets of it on iWARP.
  if (!sq_.create(c.max_send_wr, c.max_send_sge, std::max(c.max_inline_data, kMinInline)) ||
      !rq_.create(c.max_recv_wr, srq_ != nullptr ? srq_->sges() : c.max_recv_sge, 0)) {
    destroyed_ = true;
    return ENOMEM;
  }
  settle_in(init, {sq_.depth(), rq_.depth(), sq_.sges(), rq_.sges(), sq_.extra()});
  return 0;
}

void RcQueuePair::destroy() {
  {
    Registry& r = registry();
    const llp::Guard guard(r.mutex);
    if (destroyed_.exchange(true)) return;
    r.pairs.erase(number_);
  }
  engine().run([&] {
    engine().assert_held();
    engine().serve_kicks();  // what was posted leaves; nobody posts to this QP any more
    stop_bring_up();
    if (connection_ != nullptr) drop_stream(true);
    state_.store(IBV_QPS_RESET, std::memory_order_seq_cst);
    stop_timer();
    // A request that failed just now has kicked it itself. Without a stream it does not do so again.
    engine().serve_kicks();
    assert(!kicked);
    leave_queues();
  });
  leave_owners();
}

// What is new since the last call.
RcQueuePair::Tally RcQueuePair::publish_counters() {
  Connection& c = *connection_;
  const Tally now{c.endpoint().counters, c.tx_octets, c.rx_octets};
  const Tally news{now.counters.since(published_.counters), now.tx_octets - published_.tx_octets,
                   now.rx_octets - published_.rx_octets};
  published_ = now;
  const auto move = [&news](stats::Traffic& t) {
    const rdmap::EndpointCounters& n = news.counters;
    stats::add(t.tx_octets, news.tx_octets);
    stats::add(t.rx_octets, news.rx_octets);
    stats::add(t.tx_messages, n.tx_messages);
    stats::add(t.rx_messages, n.rx_messages);
    stats::add(t.tx_sends, n.tx_sends);
    stats::add(t.rx_sends, n.rx_sends);
    stats::add(t.tx_writes, n.tx_writes);
    stats::add(t.rx_write_segments, n.rx_write_segments);
    stats::add(t.tx_reads, n.tx_reads);
    stats::add(t.rx_reads, n.rx_reads);
    stats::add(t.terminates_sent, n.terminates_sent);
    stats::add(t.terminates_received, n.terminates_received);
    stats::add(t.crc_errors, n.crc_errors);
  };
  move(context().device().counters().traffic);
  if (slot_ != nullptr) move(slot_->traffic);
  return news;
}

}  // namespace ewarp::verbs
