// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Shared receive queues (ibv_create_srq(3)): where many queue pairs take their receives from.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>

#include "provider/engine/kickable.h"
#include "provider/verbs/device/context.h"
#include "provider/verbs/half_messages.h"
#include "provider/verbs/work_queue.h"

namespace ewarp::verbs {

// A request leaves the queue when the first segment of a message asks for one; from then on it is the QP's.
// QPs whose Send found no request wait in a line; while it is not empty, requests go to those in it, in turns.
// Threading: post() by any thread; modify(), query() too; the rest by the engine's holder.
class SharedReceiveQueue final : public Kickable {
 public:
  // handle: the 64-bit name in events (the ibv_srq pointer).
  SharedReceiveQueue(Pd& pd, std::uint64_t handle);
  // Requires: users is 0 and nobody posts any more.
  ~SharedReceiveQueue();
  // ibv_create_srq(). attr is updated to what was granted. 0, EINVAL (above the device's limits), ENOMEM.
  int create(ibv_srq_attr& attr);
  // ibv_post_srq_recv(): 0 or errno; *bad is the first request that was not taken.
  int post(ibv_recv_wr* wr, ibv_recv_wr** bad);
  // ibv_modify_srq(): arms the limit, changes the depth. 0, EINVAL (limit above the depth, more queued than would fit),
  // ENOMEM; nothing has changed then.
  int modify(const ibv_srq_attr& attr, int mask);
  void query(ibv_srq_attr& attr) const;

  const Pd& pd() const { return pd_; }
  Engine& engine() const { return pd_.context.engine(); }
  std::uint32_t sges() const { return queue_.sges(); }
  std::atomic<int> users{0};  // QPs attached; destroy is EBUSY while not 0

  // --- for queue pairs; engine held ---

  std::uint64_t queued() const { return queue_.tail() - queue_.head(); }
  // There is a request, and it is this QP's turn if others wait.
  bool ready_for(const Kickable& qp) const;
  // The next request, for who does not wait in line: null if there is none, or if it belongs to those who do.
  const ReceiveEntry* front() { return queued() == 0 || !line_.empty() ? nullptr : &queue_.entry(queue_.head()); }
  // Moves the next request to the end of `to`. False: there is none.
  bool take(WorkQueue<ReceiveEntry>& to);
  // The QP stands in line until it is served, which may be at once, or forgotten.
  void wait(Kickable& qp);
  void forget(Kickable& qp);
  std::size_t in_line() const { return line_.size(); }
  // It is in line no more: serve() is its turn.
  bool serves(const Kickable& qp) const { return served_ == &qp; }
  // Of the QPs that take from it and have a stream.
  HalfMessages& half_messages() { return *half_messages_; }

  // Kickable: requests were posted while QPs waited.
  void serve() override;

 private:
  int modify_now(const ibv_srq_attr& attr, int mask);
  void check_limit();

  Pd& pd_;
  const std::uint64_t handle_;
  WorkQueue<ReceiveEntry> queue_;
  std::atomic<std::uint32_t> depth_{0};
  std::atomic<std::uint32_t> limit_{0};  // 0: not armed
  std::list<Kickable*> line_;
  const std::shared_ptr<HalfMessages> half_messages_;
  std::atomic<bool> awaited_{false};  // line_ is not empty: post() must kick
  const Kickable* served_ = nullptr;  // whose turn it is, and for how many requests
  std::uint64_t turn_ = 0;
};

}  // namespace ewarp::verbs
