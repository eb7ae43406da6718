// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The send queue of a queue pair of RD: slots that come free in any order, a line for each peer.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "llp/mutex.h"
#include "llp/rd/types.h"
#include "provider/verbs/ud/address_handle.h"
#include "provider/verbs/work_queue.h"
#include "rdmap/request.h"

namespace ewarp::verbs {

struct RdSend : rdmap::SendRequest {
  std::uint64_t wr_id;
  llp::rd::Key peer;
  AddressHandle to;
  bool signaled, is_inline;
  std::uint16_t sge_count;

 private:
  friend class RdSendQueue;
  std::uint32_t behind;        // the next for the same peer
  std::uint32_t last;          // of its line; in the first only
  std::uint32_t chain;         // another line; in the first only
  std::uint32_t older, newer;  // in the order of posting, all that are in use
};

// A request waits in posted_ (a ring of slot numbers), then in its peer's line until it is started; its slot is free
// again when it is complete, and then waits in free_. Lines are found by hashing; no more of them than requests.
// Threading: post() under its lock; the rest by the engine's holder.
class RdSendQueue {
 public:
  bool create(std::uint32_t depth, std::uint32_t sges, std::uint32_t inline_octets);  // false: no memory
  std::uint32_t depth() const { return slots_.depth(); }
  std::uint32_t sges() const { return slots_.sges(); }
  std::uint32_t inline_octets() const { return slots_.extra(); }

  // put(request, slot) fills one, 0 or errno. As put_sends(); ENOMEM when no slot is free.
  template <class Put>
  int post(bool whole, ibv_send_wr* wr, ibv_send_wr** bad, Put put);
  template <class Body>
  void locked(Body body) {
    const llp::Guard guard(posted_.lock);
    body();
  }

  RdSend& at(std::uint32_t slot) { return slots_.entry(slot); }
  std::span<const Sge> pieces(const RdSend& s) { return {slots_.sge(s), s.sge_count}; }
  std::byte* inline_data(const RdSend& s) { return slots_.extra(s); }
  std::uint16_t put_pieces(std::uint32_t slot, const ibv_send_wr& wr) { return verbs::put_pieces(slots_, slot, wr); }

  // The next one that was posted goes to its peer's line; null: none.
  RdSend* arrange();
  // The first of a peer's line; null: it has none.
  RdSend* first(const llp::rd::Key& peer);
  void start(const llp::rd::Key& peer);  // it leaves the line
  void release(RdSend& s);
  bool empty() const { return oldest_ == kNone; }  // but for what is not arranged
  template <class F>
  void each_line(F f) {
    for (const std::uint32_t b : lines_)
      for (std::uint32_t i = b; i != kNone; i = at(i).chain) f(at(i));
  }
  // All lines are forgotten; what is in use, the oldest first, for the caller to release.
  void forget_lines();
  RdSend* oldest() { return oldest_ == kNone ? nullptr : &at(oldest_); }

 private:
  static constexpr std::uint32_t kNone = ~0u;
  std::uint32_t slot_of(const RdSend& s) { return static_cast<std::uint32_t>(slots_.position(s)); }
  std::uint32_t* line_of(const llp::rd::Key& peer);

  WorkQueue<RdSend> slots_;  // an array: positions are slots
  WorkQueue<std::uint32_t> posted_;
  WorkQueue<std::uint32_t> free_;     // the other way round: posters take
  std::vector<std::uint32_t> lines_;  // buckets
  std::uint32_t oldest_ = kNone, newest_ = kNone;
};

template <class Put>
int RdSendQueue::post(bool whole, ibv_send_wr* wr, ibv_send_wr** bad, Put put) {
  const llp::Guard guard(posted_.lock);
  const std::uint64_t tail = posted_.tail(), free = free_.head(), end = free_.tail();
  const PlacedSends placed = place_sends(posted_, whole, wr, bad, [&](const ibv_send_wr& next, std::uint64_t position) {
    const std::uint64_t from = free + (position - tail);
    if (from >= end) return ENOMEM;
    const std::uint32_t slot = free_.entry(from);
    posted_.entry(position) = slot;
    return put(next, slot);
  });
  // First: once they are published, their slots may be free again, and there is room for no more than all.
  free_.retire(free + (placed.tail - tail));
  posted_.publish(placed.tail);
  return placed.rc;
}

}  // namespace ewarp::verbs
