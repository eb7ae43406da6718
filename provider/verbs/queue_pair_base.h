// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What every queue pair has, whatever carries it: its queues' owners, its caps, its place among the counters, its
// completions.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "provider/base/stats.h"
#include "provider/verbs/completion_queue.h"
#include "provider/verbs/memory/memory.h"
#include "provider/verbs/queue_pair.h"
#include "provider/verbs/shared_receive_queue.h"
#include "rdmap/request.h"

namespace ewarp::verbs {

class Engine;
Engine& engine();  // provider/process

// Threading: fields are set before the queue pair is used, then read by any thread; overflowed_, slot_: engine held.
class QueuePairBase : public QueuePair {
 public:
  std::uint32_t number() const override { return number_; }
  Context& context() const override { return pd_.context; }
  Engine& engine() const { return verbs::engine(); }  // not by the PD: a late callback may outlive it
  void set_handle(std::uint64_t handle) override { handle_ = handle; }
  ibv_qp_type type() const override { return type_; }

  // Caps above the device's, no CQ: EINVAL. An SRQ: there is no receive queue.
  static int check_caps(ibv_qp_cap& cap, const CompletionQueue* send_cq, const CompletionQueue* recv_cq,
                        const SharedReceiveQueue* srq);

 protected:
  static constexpr std::uint32_t kMinInline = 64;

  QueuePairBase(Pd& pd, CompletionQueue* send_cq, CompletionQueue* recv_cq, SharedReceiveQueue* srq,
                std::uint32_t number, ibv_qp_type type)
      : pd_(pd), send_cq_(send_cq), recv_cq_(recv_cq), srq_(srq), number_(number), type_(type) {}

  // The last of a creation: PD, CQs and SRQ are in use, the counters know it. granted: init's caps from now on, those
  // of receives only without an SRQ.
  void settle_in(ibv_qp_init_attr& init, const ibv_qp_cap& granted);
  // The last of a destruction, in two halves: with the engine held; and behind it, when nobody calls any more.
  void leave_queues();
  void leave_owners();
  void complete(CompletionQueue& cq, ibv_wc& wc, bool solicited, WriteHold* hold = nullptr);

  Pd& pd_;
  CompletionQueue* const send_cq_;
  CompletionQueue* const recv_cq_;
  SharedReceiveQueue* const srq_;  // null: receives are posted to the queue pair's own queue
  const std::uint32_t number_;
  const ibv_qp_type type_;
  std::uint64_t handle_ = 0;
  bool signal_all_ = false;
  ibv_qp_cap cap_{};
  void* qp_context_ = nullptr;
  bool overflowed_ = false;  // a CQ took no more; until the next RESET
  stats::QpPage* slot_ = nullptr;
};

// The memory of this process as RDMAP reaches it, for a consumer of either kind.
template <class Consumer>
class OverMemory : public Consumer {
 public:
  bool copy_in(const llp::Extent& to, const std::byte* from) override { return verbs::copy_in(to, from); }
  bool atomic(const llp::Extent& target, const rdmap::AtomicRequest& request, std::uint64_t* original) override {
    return verbs::atomic(target, request, original);
  }
  bool readable(const llp::Extent& extent) override { return verbs::readable(extent); }
  bool hold(const llp::Extent& extent) override { return verbs::hold(extent); }
  void let_go(const llp::Extent& extent) override { verbs::let_go(extent); }

 protected:
  ~OverMemory() = default;
};

}  // namespace ewarp::verbs
