// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The receive side of DDP's untagged queues on an ordered LLP: MSN and MO checks (RFC 5041 sections 5 and 7.2).
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <optional>

#include "ddp/header.h"

namespace ewarp::ddp {

inline constexpr std::uint32_t kQueueSend = 0, kQueueRequest = 1, kQueueTerminate = 2, kQueueAtomicResponse = 3;

inline constexpr std::uint32_t kMaxQueues = 4;

// One per stream. check_queue() and check_offset() before anything of the segment is placed; advance() once it was
// accepted.
class UntaggedQueues {
 public:
  // queues: how many queue numbers exist (3, or 4 with RFC 7306; never more than 4). The standard's first MSN is 1.
  explicit UntaggedQueues(std::uint32_t queues = 3, std::uint32_t first_msn = 1)
      : queues_(std::min<std::uint32_t>(queues, kMaxQueues)) {
    for (Queue& q : state_) q.msn = first_msn;
  }

  std::uint32_t count() const { return queues_; }

  // Checks QN (1/2/01), MSN (1/2/03), MO (1/2/04: not where the message stands, or past 2^32-1), in this order.
  // Buffers are the caller's to check between the two: no buffer 1/2/02, too long 1/2/05.
  std::optional<Fault> check_queue(const UntaggedHeader& h) const;
  // check_offset() and advance() require: check_queue() found nothing.
  std::optional<Fault> check_offset(const UntaggedHeader& h, std::size_t payload) const;
  // The segment was taken: moves MO on, and MSN when it was the last of its message.
  void advance(const UntaggedHeader& h, std::size_t payload);
  // The message on queue qn that is open, or would come next, failed: it keeps its MSN.
  void skip(std::uint32_t qn) {
    assert(qn < queues_);
    state_[qn] = Queue{state_[qn].msn + 1, 0, false};
  }
  // As after all messages before this one. Requires: no message is open.
  void resume(std::uint32_t qn, std::uint32_t msn) {
    assert(qn < queues_ && !state_[qn].open);
    state_[qn].msn = msn;
  }
  // Octets of the message on queue qn that arrived so far.
  std::uint32_t offset(std::uint32_t qn) const { return state_[qn].mo; }
  bool in_message(std::uint32_t qn) const { return state_[qn].open; }
  std::uint32_t expected_msn(std::uint32_t qn) const { return state_[qn].msn; }

 private:
  struct Queue {
    std::uint32_t msn = 1;
    std::uint32_t mo = 0;
    bool open = false;
  };
  std::uint32_t queues_;
  std::array<Queue, kMaxQueues> state_{};
};

}  // namespace ewarp::ddp
