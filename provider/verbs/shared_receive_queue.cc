// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/shared_receive_queue.h"

#include <algorithm>
#include <cassert>
#include <exception>

#include "llp/mutex.h"
#include "provider/base/log.h"
#include "provider/engine/engine.h"

namespace ewarp::verbs {

SharedReceiveQueue::SharedReceiveQueue(Pd& pd, std::uint64_t handle)
    : pd_(pd), handle_(handle), half_messages_(std::make_shared<HalfMessages>(engine())) {
  pd_.users.fetch_add(1);
}

SharedReceiveQueue::~SharedReceiveQueue() {
  assert(users == 0);
  Engine& e = engine();
  e.run([&] {
    e.assert_held();
    e.serve_kicks();
    half_messages_->close();
  });
  pd_.users.fetch_sub(1);
}

int SharedReceiveQueue::create(ibv_srq_attr& attr) {
  if (attr.max_wr > kMaxSrqWr || attr.max_sge > kMaxSge) return EINVAL;
  if (!queue_.create(attr.max_wr, attr.max_sge, 0)) return ENOMEM;
  depth_ = attr.max_wr = queue_.depth();
  attr.max_sge = queue_.sges();
  return 0;
}

int SharedReceiveQueue::post(ibv_recv_wr* wr, ibv_recv_wr** bad) {
  int rc = 0;
  {
    const llp::Guard guard(queue_.lock);
    rc = put_receives(queue_, true, queue_.sges(), wr, bad);
  }
  // Pairs with wait(): the requests are published, then awaited_ is looked at.
  if (awaited_.load(std::memory_order_seq_cst)) engine().kick(*this);
  return rc;
}

int SharedReceiveQueue::modify(const ibv_srq_attr& attr, int mask) {
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
  int rc = 0;
  engine().run([&] { rc = modify_now(attr, mask); });
  return rc;
}

int SharedReceiveQueue::modify_now(const ibv_srq_attr& attr, int mask) {
  engine().assert_held();
  int rc = 0;
  {
    const llp::Guard guard(queue_.lock);
    const std::uint32_t depth = (mask & IBV_SRQ_MAX_WR) != 0 ? attr.max_wr : queue_.depth();
    if (depth > kMaxSrqWr || queued() > depth || ((mask & IBV_SRQ_LIMIT) != 0 && attr.srq_limit > depth))
      rc = EINVAL;
    else if ((mask & IBV_SRQ_MAX_WR) != 0 && !queue_.resize(depth))
      rc = ENOMEM;
    depth_ = queue_.depth();
  }
  if (rc == 0 && (mask & IBV_SRQ_LIMIT) != 0) {
    limit_ = attr.srq_limit;
    check_limit();
  }
  return rc;
}

void SharedReceiveQueue::query(ibv_srq_attr& attr) const {
  attr = ibv_srq_attr{.max_wr = depth_, .max_sge = queue_.sges(), .srq_limit = limit_};
}

void SharedReceiveQueue::check_limit() {
  if (queued() >= limit_.load(std::memory_order_relaxed)) return;  // not armed is 0
  limit_ = 0;
  pd_.context.raise(IBV_EVENT_SRQ_LIMIT_REACHED, handle_);
}

bool SharedReceiveQueue::ready_for(const Kickable& qp) const {
  if (queued() == 0) return false;
  return served_ == &qp ? turn_ > 0 : line_.empty();
}

bool SharedReceiveQueue::take(WorkQueue<ReceiveEntry>& to) {
  engine().assert_held();
  const std::uint64_t from = queue_.head(), at = to.tail();
  if (from == queue_.tail()) return false;
  const ReceiveEntry& e = to.entry(at) = queue_.entry(from);
  std::copy_n(queue_.sge(from), e.sge_count, to.sge(at));
  to.publish(at + 1);
  queue_.retire(from + 1);
  if (turn_ > 0) --turn_;
  check_limit();
  return true;
}

void SharedReceiveQueue::wait(Kickable& qp) {
  line_.push_back(&qp);
  awaited_.exchange(true, std::memory_order_seq_cst);
  // Where serve() is at work or on its way already, it sees this one too.
  if (queued() != 0 && served_ == nullptr && !kicked.load(std::memory_order_relaxed)) engine().kick(*this);
  half_messages_->needed();
}

void SharedReceiveQueue::forget(Kickable& qp) {
  line_.remove(&qp);
  if (!line_.empty()) return;
  awaited_.store(false, std::memory_order_relaxed);
  half_messages_->not_needed();
}

// Each QP in line gets its share of what is there, at least one, before it has to wait again, at the end of the line.
void SharedReceiveQueue::serve() {
  while (!line_.empty() && queued() != 0) {
    Kickable& qp = *line_.front();
    turn_ = std::max<std::uint64_t>(1, queued() / line_.size());
    forget(qp);
    served_ = &qp;
    try {
      qp.serve();
    } catch (const std::exception& e) {  // no memory: its end, and the others get their turns
      log::error("a queue pair could not be served: {}", e.what());
      qp.broken();
    }
    served_ = nullptr;
    turn_ = 0;
  }
}

}  // namespace ewarp::verbs
