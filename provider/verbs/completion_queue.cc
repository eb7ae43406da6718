// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/completion_queue.h"

#include <errno.h>
#include <time.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "llp/clock.h"
#include "llp/mutex.h"
#include "provider/base/log.h"
#include "provider/engine/engine.h"
#include "provider/verbs/write_hold.h"

namespace ewarp::verbs {
namespace {

constexpr int kArmedSolicited = 1, kArmedNext = 2;
// Who polls an armed queue oftener than that does not do so to sleep.
constexpr unsigned kPollsToSleep = 4;

}  // namespace

std::uint64_t device_clock() {
  return ns_of(CLOCK_MONOTONIC);
}

bool CompletionQueue::Ring::allocate(std::size_t n, bool stamped) {
  // Not initialised: the pages of a large queue come with use.
  entries.reset(static_cast<ibv_wc*>(std::malloc(n * sizeof(ibv_wc))));
  stamps.reset(stamped ? static_cast<CompletionStamp*>(std::malloc(n * sizeof(CompletionStamp))) : nullptr);
  return entries != nullptr && (stamps != nullptr || !stamped);
}

void CompletionQueue::Ring::copy(std::size_t to, const Ring& from, std::size_t at) {
  entries[to] = from.entries[at];
  if (stamps != nullptr) stamps[to] = from.stamps[at];
}

CompletionQueue::CompletionQueue(Context& context, int cqe, std::shared_ptr<EventChannel> channel, std::uint64_t handle)
    : context_(context), channel_(std::move(channel)), handle_(handle), capacity_(static_cast<std::uint32_t>(cqe)) {
  if (!ring_.allocate(static_cast<std::size_t>(cqe), false)) ring_.entries.reset();
}

int CompletionQueue::keep_stamps(bool raw, bool wall) EWARP_NO_LOCK_ANALYSIS {
  stamps_raw_ = raw;
  stamps_wall_ = wall;
  return ring_.allocate(capacity_.load(std::memory_order_relaxed), raw || wall) ? 0 : ENOMEM;
}

CompletionStamp CompletionQueue::stamp_now() const {
  return {stamps_raw_ ? device_clock() : 0, stamps_wall_ ? ns_of(CLOCK_REALTIME) : 0};
}

// Takes what there is. A completion that is held back is waited for, in passes.
int CompletionQueue::take(int n, ibv_wc* wc, CompletionStamp* stamps) {
  for (;;) {
    if (count_.load(std::memory_order_acquire) == 0) return 0;  // pairs with push()
    bool in_vain = false;
    int taken = -1;
    {
      const llp::Guard guard(lock_);
      const std::size_t count = count_.load(std::memory_order_relaxed);
      if (count != 1 || !keep_back(&in_vain)) taken = take_what_is_due(n, count, wc, stamps);
    }
    // The program goes off to look at memory, perhaps: somebody else has to receive what it waits for.
    if (in_vain) engine().application_may_sleep();
    if (taken >= 0) return taken;
    engine().application_pass(false);
  }
}

int CompletionQueue::take_what_is_due(int n, std::size_t count, ibv_wc* wc, CompletionStamp* stamps) {
  assert(count <= capacity_.load(std::memory_order_relaxed));
  const std::size_t capacity = capacity_.load(std::memory_order_relaxed);
  int taken = 0;
  for (; taken < n && count > 0; ++taken, --count) {
    wc[taken] = ring_.entries[head_];
    if (stamps != nullptr && ring_.stamps != nullptr) stamps[taken] = ring_.stamps[head_];
    if (++head_ == capacity) head_ = 0;
  }
  if (count == 0) {
    hold_ = nullptr;
    head_ = 0;  // so that of a large ring only the front is used, and stays in the cache
  }
  if (const unsigned given = since_armed_.load(std::memory_order_relaxed); given < kLongUnarmed)
    since_armed_.store(given + static_cast<unsigned>(taken), std::memory_order_relaxed);
  count_.store(count, std::memory_order_release);
  return taken;
}

// Whether the only completion there is is kept for a moment (write_hold.h). Not where the program uses events: it
// drains the queue before it sleeps, or sleeps for this completion. *in_vain: it was kept, and no
// message came.
bool CompletionQueue::keep_back(bool* in_vain) {
  if (hold_ == nullptr) return false;
  const auto now = WriteHold::Time::clock::now();
  const bool events =
      armed_.load(std::memory_order_relaxed) != 0 || since_armed_.load(std::memory_order_relaxed) < kLongUnarmed;
  if (held_) {
    if (events)
      hold_->release();
    else if (!hold_->over(now))
      return true;
    *in_vain = hold_->messages() == hold_messages_;
    return held_ = false;
  }
  held_ = !events && hold_->begin(hold_messages_, now);
  if (held_) engine().application_will_pass();
  return held_;
}

// An event for solicited completions alone may stay armed for ever, while the application polls for others.
bool CompletionQueue::about_to_sleep() {
  return armed_.load(std::memory_order_relaxed) != 0 &&
         polls_since_armed_.fetch_add(1, std::memory_order_relaxed) < kPollsToSleep;
}

int CompletionQueue::poll(int n, ibv_wc* wc) {
  if (n <= 0) return n < 0 ? -EINVAL : 0;
  const int taken = take(n, wc);
  if (taken > 0) return taken;
  if (overflowed_.load(std::memory_order_relaxed)) return -EOVERFLOW;
  engine().application_pass(about_to_sleep());
  return take(n, wc);
}

int CompletionQueue::poll_one(ibv_wc* wc, CompletionStamp* stamp, bool pass) {
  if (take(1, wc, stamp) == 1) return 0;
  if (overflowed_.load(std::memory_order_relaxed)) return EOVERFLOW;
  if (!pass) return ENOENT;
  engine().application_pass(about_to_sleep());
  return take(1, wc, stamp) == 1 ? 0 : ENOENT;
}

void CompletionQueue::arm(bool solicited_only) {
  const int want = solicited_only ? kArmedSolicited : kArmedNext;
  polls_since_armed_.store(0, std::memory_order_relaxed);
  since_armed_.store(0, std::memory_order_relaxed);
  // A read-modify-write that is ordered with push()'s: whoever comes second sees the other (VRB-15). NEXT is never
  // weakened to SOLICITED (VRB-17).
  int now = armed_.load(std::memory_order_seq_cst);
  while (!armed_.compare_exchange_weak(now, std::max(now, want), std::memory_order_seq_cst)) {
  }
  engine().application_may_sleep();
}

bool CompletionQueue::push(const ibv_wc& wc, bool solicited, WriteHold* hold) {
  const CompletionStamp stamp = stamp_now();
  {
    const llp::Guard guard(lock_);
    const std::size_t capacity = capacity_.load(std::memory_order_relaxed);
    const std::size_t count = count_.load(std::memory_order_relaxed);
    if (count == capacity || overflowed_.load(std::memory_order_relaxed)) {
      if (overflowed_.exchange(true)) return false;
    } else {
      std::size_t at = head_ + count;
      if (at >= capacity) at -= capacity;
      assert(at < capacity);
      ring_.entries[at] = wc;
      if (ring_.stamps != nullptr) ring_.stamps[at] = stamp;
      if (std::exchange(held_, false)) hold_->release();  // it is no longer the only one
      hold_ = hold;
      if (hold != nullptr) hold_messages_ = hold->messages();
      count_.store(count + 1, std::memory_order_seq_cst);
    }
  }
  if (overflowed_.load(std::memory_order_relaxed)) {
    log::warn("a completion queue of {} entries overflowed: make it larger, or poll it more often", capacity());
    context_.raise(IBV_EVENT_CQ_ERR, handle_);
    return false;
  }
  // fetch_or(0): a read-modify-write, so that it is ordered with arm()'s also for TSan.
  const int armed = armed_.fetch_or(0, std::memory_order_seq_cst);
  if ((armed == kArmedNext || (armed == kArmedSolicited && solicited)) &&
      armed_.exchange(0, std::memory_order_seq_cst) != 0)
    notify();
  return true;
}

void CompletionQueue::written(bool quiet) {
  if (armed_.load(std::memory_order_seq_cst) != kArmedNext) return;
  if (!quiet && count_.load(std::memory_order_relaxed) == 0) return;
  if (armed_.exchange(0, std::memory_order_seq_cst) != 0) notify();
}

void CompletionQueue::notify() {
  engine().assert_held();
  if (channel_ == nullptr || channel_->closed()) return;
  std::array<std::byte, sizeof handle_> record;
  std::memcpy(record.data(), &handle_, sizeof handle_);
  engine().came(true);
  events_posted_.fetch_add(1, std::memory_order_relaxed);
  channel_->post(record);
}

int CompletionQueue::resize(int cqe) {
  if (cqe <= 0 || cqe > kMaxCqe) return EINVAL;
  Ring fresh;
  if (!fresh.allocate(static_cast<std::size_t>(cqe), stamps_raw_ || stamps_wall_)) return ENOMEM;
  const llp::Guard guard(lock_);
  const std::size_t capacity = capacity_.load(std::memory_order_relaxed);
  const std::size_t count = count_.load(std::memory_order_relaxed);
  if (count > static_cast<std::size_t>(cqe)) return EINVAL;
  for (std::size_t i = 0; i < count; ++i) fresh.copy(i, ring_, (head_ + i) % capacity);
  std::swap(ring_, fresh);
  head_ = 0;
  capacity_.store(static_cast<std::uint32_t>(cqe), std::memory_order_relaxed);
  return 0;
}

void CompletionQueue::purge(std::uint32_t qp_number) {
  const llp::Guard guard(lock_);
  const std::size_t capacity = capacity_.load(std::memory_order_relaxed);
  const std::size_t count = count_.load(std::memory_order_relaxed);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = (head_ + i) % capacity;
    if (ring_.entries[at].qp_num != qp_number) ring_.copy((head_ + kept++) % capacity, ring_, at);
  }
  hold_ = nullptr;  // it may be this QP's; another's is given a moment earlier
  held_ = false;
  count_.store(kept, std::memory_order_release);
}

std::optional<std::uint64_t> CompletionQueue::retire_events() {
  if (channel_ != nullptr && channel_->closed()) return std::nullopt;
  const std::uint64_t unread = channel_ == nullptr ? 0 : channel_->purge(handle_);
  return events_posted_.load(std::memory_order_relaxed) - unread;
}

bool push_counted(CompletionQueue& cq, Context& context, stats::QpPage* slot, const ibv_wc& wc, bool solicited,
                  WriteHold* hold) {
  // Work that comes back at the end of a connection is no error.
  stats::Counter stats::Traffic::*const kind = wc.status == IBV_WC_SUCCESS        ? &stats::Traffic::completions
                                               : wc.status == IBV_WC_WR_FLUSH_ERR ? &stats::Traffic::flushed_completions
                                                                                  : &stats::Traffic::error_completions;
  stats::add(context.device().counters().traffic.*kind);
  if (slot != nullptr) stats::add(slot->traffic.*kind);
  return cq.push(wc, solicited || wc.status != IBV_WC_SUCCESS, hold);
}

}  // namespace ewarp::verbs
