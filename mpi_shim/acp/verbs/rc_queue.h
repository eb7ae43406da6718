// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What was posted to one peer on one lane, in order: what a reliable connection may take next, and what becomes of it
// when the connection breaks. No verbs.
//
// A connection of channels that breaks is lost, and all that was posted with it. One of accesses is made again: the
// peer may have refused one of them. Adapters do not always say which (an iWARP Write is complete before the peer has
// seen it), so what was under way is done again, one by one. The one that is alone when the connection breaks is the
// one to blame. Copies may be done twice, because they have not ended yet. Atomics may not: one is under way alone.
#pragma once

#include "mpi_shim/acp/verbs/transport.h"

namespace ewarp::acp {

class RcOutbound;

// A post, until its Completion is polled.
struct RcSlot {
  static constexpr std::uint32_t kOctets = 256;

  Post post;
  RcSlot* next;
  RcOutbound* on;
  int error;
  std::uint32_t requests;                // of it, at the adapter
  alignas(8) std::byte octets[kOctets];  // copied ones of the post; else where results go that nobody reads
};

class RcQueue {
 public:
  static constexpr std::uint32_t kDepth = 32;          // requests at the adapter
  static constexpr std::uint32_t kNotices = 32;        // that the peer takes without being polled
  static constexpr std::uint32_t kNoticesAtOnce = 16;  // it tells of so many that were polled

  explicit RcQueue(Lane lane) : lane_(lane) {}

  // Requests that the adapter gets for a post: a Write of an access has a Read behind it, whose answer says that the
  // octets are placed.
  static std::uint32_t requests_of(const Post& p) {
    return p.lane == Lane::accesses && p.what == Operation::write ? 2 : 1;
  }

  bool empty() const { return first_ == nullptr && suspect_ == nullptr; }
  std::uint32_t requests() const { return requests_; }  // at the adapter
  void push(RcSlot& slot);
  // What the connection may take now, in order; null: nothing. Requires: no request has failed.
  RcSlot* next() const;
  // The adapter has taken so many requests of next().
  void taken(std::uint32_t requests);
  // A request of this slot has ended. The slot, if it has ended thereby and left the queue; else null.
  RcSlot* completed(RcSlot& slot, int error);
  // A request has failed: nothing more may be posted before restart().
  bool broken() const { return broken_; }
  // The peer has polled kNoticesAtOnce notices.
  void polled();
  // Requires: requests() is 0. The connection will be made again.
  void restart();
  // The slot that was alone when the connection broke, and left the queue; null: none. If the peer can be connected to
  // again, it lives, and has refused the access.
  RcSlot* suspect();
  // The first, which leaves the queue; null: none does. Requires: requests() is 0.
  RcSlot* pop();
  // The first that waits, which leaves the queue; null: none does.
  RcSlot* pop_waiting();

 private:
  static bool is_atomic(const Post& p);
  bool has_to_be_alone(const RcSlot& slot) const;
  void remove(RcSlot& slot);

  const Lane lane_;
  bool broken_ = false;
  bool blamed_ = false;  // the adapter has said which one has broken the connection
  std::uint32_t requests_ = 0;
  std::uint32_t notices_ = kNotices;  // that the peer will take
  std::uint32_t alone_ = 0;           // so many are to be done one by one
  RcSlot* first_ = nullptr;
  RcSlot* last_ = nullptr;
  RcSlot* next_ = nullptr;  // the first that the adapter does not have
  RcSlot* suspect_ = nullptr;
};

}  // namespace ewarp::acp
