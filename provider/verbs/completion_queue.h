// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Completion queues (VRB-14 to VRB-18 of docs/protocol/requirements.md section 6).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>

#include "llp/spinlock.h"
#include "provider/verbs/device/context.h"

namespace ewarp::verbs {

class QueuePair;
class WriteHold;

// When a completion was made, in nanoseconds; 0 where CompletionQueue::keep_stamps() did not ask for it.
struct CompletionStamp {
  std::uint64_t raw;   // of device_clock()
  std::uint64_t wall;  // CLOCK_REALTIME
};

// The clock that stands for the device's own: nanoseconds, starts at boot, is never set.
std::uint64_t device_clock();

// Threading: push() by the engine's holder, poll() and arm() by any thread.
class CompletionQueue {
 public:
  // channel: where its events go, may be null; handle: the 64-bit name in them (the ibv_cq pointer).
  CompletionQueue(Context& context, int cqe, std::shared_ptr<EventChannel> channel, std::uint64_t handle);

  int capacity() const { return static_cast<int>(capacity_.load(std::memory_order_relaxed)); }
  // ibv_poll_cq(): up to n completions; when empty, one pass of the engine if it is free. Negative: overflowed.
  int poll(int n, ibv_wc* wc);
  // The oldest completion and its stamp. 0, ENOENT (empty), EOVERFLOW. pass: when empty, do as poll() does.
  int poll_one(ibv_wc* wc, CompletionStamp* stamp, bool pass);
  // From now on completions are stamped. 0 or ENOMEM. Requires: nothing uses the queue yet.
  int keep_stamps(bool raw, bool wall);
  // ibv_req_notify_cq().
  void arm(bool solicited_only);
  // 0, EINVAL if more entries are present than would fit.
  int resize(int cqe);
  // Removes the completions of this QP.
  void purge(std::uint32_t qp_number);
  // Takes back unread events; returns how many events have been reported to the application in all, so that
  // destruction can wait until that many were acknowledged. Nothing: a forked child, which is told of none.
  std::optional<std::uint64_t> retire_events();

  // False: there was no memory for the ring.
  bool valid() const EWARP_NO_LOCK_ANALYSIS { return ring_.entries != nullptr; }
  std::atomic<int> users{0};  // queues attached; destroy is EBUSY while not 0

  // Engine's holder only. hold: of a Write that may be held back; it lives until purge() of its QP. False: overflow
  // (the CQ is dead; CQ_ERR has been raised).
  bool push(const ibv_wc& wc, bool solicited, WriteHold* hold = nullptr);
  // A peer's Write arrived on a QP of this CQ. Wakes a sleeper that may be waiting for it: completions lie here unread,
  // or (`quiet`) sends have completed without telling it (docs/design/verbs.md).
  void written(bool quiet);

 private:
  Engine& engine() const { return context_.engine(); }
  // After so many completions without arming a program has done with events.
  static constexpr unsigned kLongUnarmed = 256;
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  struct Ring {
    std::unique_ptr<ibv_wc[], Free> entries;
    std::unique_ptr<CompletionStamp[], Free> stamps;  // null: not asked for
    // False: no memory.
    bool allocate(std::size_t n, bool stamped);
    void copy(std::size_t to, const Ring& from, std::size_t at);
  };
  int take(int n, ibv_wc* wc, CompletionStamp* stamps = nullptr) EWARP_EXCLUDES(lock_);
  int take_what_is_due(int n, std::size_t count, ibv_wc* wc, CompletionStamp* stamps) EWARP_REQUIRES(lock_);
  bool about_to_sleep();
  bool keep_back(bool* in_vain) EWARP_REQUIRES(lock_);
  CompletionStamp stamp_now() const;
  void notify();
  Context& context_;
  std::shared_ptr<EventChannel> channel_;
  std::uint64_t handle_;
  llp::Spinlock lock_;
  Ring ring_ EWARP_GUARDED_BY(lock_);
  // The newest completion's, which alone in the queue may be held back; null: it is not.
  WriteHold* hold_ EWARP_GUARDED_BY(lock_) = nullptr;
  std::uint64_t hold_messages_ EWARP_GUARDED_BY(lock_) = 0;  // that had come when it was made
  bool held_ EWARP_GUARDED_BY(lock_) = false;
  std::atomic<unsigned> since_armed_{kLongUnarmed};  // completions given
  bool stamps_raw_ = false, stamps_wall_ = false;
  std::atomic<std::uint32_t> capacity_;
  std::size_t head_ EWARP_GUARDED_BY(lock_) = 0;
  std::atomic<std::size_t> count_{0};
  std::atomic<int> armed_{0};                   // 0, 1 solicited only, 2 next
  std::atomic<unsigned> polls_since_armed_{0};  // that found nothing
  std::atomic<bool> overflowed_{false};
  std::atomic<std::uint64_t> events_posted_{0};
};

// Counts a completion for the device and the QP's slot (if it has one), then push().
bool push_counted(CompletionQueue& cq, Context& context, stats::QpPage* slot, const ibv_wc& wc, bool solicited,
                  WriteHold* hold = nullptr);

}  // namespace ewarp::verbs
