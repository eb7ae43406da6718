// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The Reads and atomics of the peer that are not answered.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>

#include "llp/ring.h"
#include "rdmap/header.h"

namespace ewarp::rdmap {

// One of the two; `request` and the progress of its answer are a Read's.
struct InboundRequest {
  ReadRequest request;
  std::optional<AtomicRequest> atomic;
  std::uint32_t sent = 0;  // octets of the answer
  std::uint32_t msn = 0;
  std::uint64_t probed = 0;  // octets known to be readable
};

// Answered in the order of arrival (RFC 5040 section 5.5, RFC 7306 section 5): only the oldest is worked on. At most
// IRD at once; an RTR by Read is the first of all and is served with an IRD of 0, too.
class InboundRequests {
 public:
  explicit InboundRequests(std::uint16_t ird) : ird_(ird) {}

  bool empty() const { return items_.empty(); }
  bool full() const { return items_.size() >= ird_; }
  // Requires: !full(), or the RTR.
  void push(const InboundRequest& request) {
    assert(!full() || (items_.empty() && !request.atomic && request.request.length == 0));
    items_.push_back(request);
  }

  // These require: not empty().
  InboundRequest& oldest() { return items_.front(); }
  const InboundRequest& oldest() const { return items_.front(); }
  void pop() {
    assert(oldest().atomic || oldest().sent == oldest().request.length);
    items_.pop_front();
  }
  void clear() { items_.clear(); }

 private:
  std::uint16_t ird_;
  llp::Ring<InboundRequest> items_;
};

}  // namespace ewarp::rdmap
