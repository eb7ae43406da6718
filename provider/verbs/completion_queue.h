// Completion queues (verbs-semantics.md section 6).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "llp/spinlock.h"
#include "provider/verbs/context.h"

namespace ewarp::verbs {

class QueuePair;

// Threading: push() by the engine's holder, poll() and arm() by any thread.
class CompletionQueue {
 public:
  // channel: where its events go, may be null; handle: the 64-bit name in them (the ibv_cq pointer).
  CompletionQueue(Context& context, int cqe, std::shared_ptr<EventChannel> channel, std::uint64_t handle);

  int capacity() const { return static_cast<int>(capacity_.load(std::memory_order_relaxed)); }
  // ibv_poll_cq(): up to n completions; when empty, one pass of the engine if it is free. Negative: overflowed.
  int poll(int n, ibv_wc* wc);
  // ibv_req_notify_cq().
  void arm(bool solicited_only);
  // 0, EINVAL if more entries are present than would fit.
  int resize(int cqe);
  // Removes the completions of this QP.
  void purge(std::uint32_t qp_number);
  // Takes back unread events; returns how many events have been reported to the application in all, so that
  // destruction can wait until that many were acknowledged.
  std::uint64_t retire_events();

  // False: there was no memory for the ring.
  bool valid() const { return ring_ != nullptr; }
  bool armed() const { return armed_.load(std::memory_order_relaxed) != 0; }
  std::atomic<int> users{0};  // queues attached; destroy is EBUSY while not 0

  // Engine's holder only. False: overflow (the CQ is dead; CQ_ERR has been raised).
  bool push(const ibv_wc& wc, bool solicited);
  // A peer's Write arrived on a QP of this CQ. Wakes a sleeper that may be waiting for it: completions lie here unread,
  // or (`quiet`) sends have completed without telling it (docs/verbs.md).
  void written(bool quiet);

 private:
  struct Free {
    void operator()(ibv_wc* p) const { std::free(p); }
  };
  using Entries = std::unique_ptr<ibv_wc[], Free>;
  static Entries allocate(std::size_t n);
  int take(int n, ibv_wc* wc);
  void notify();
  Context& context_;
  std::shared_ptr<EventChannel> channel_;
  std::uint64_t handle_;
  llp::Spinlock lock_;
  Entries ring_;
  std::atomic<std::uint32_t> capacity_;
  std::size_t head_ = 0;
  std::atomic<std::size_t> count_{0};
  std::atomic<int> armed_{0};  // 0, 1 solicited only, 2 next
  std::atomic<bool> overflowed_{false};
  std::atomic<std::uint64_t> events_posted_{0};
};

}  // namespace ewarp::verbs
