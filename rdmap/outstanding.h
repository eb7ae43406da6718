// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Our Reads and atomics that were sent and are not answered.
#pragma once

#include <cassert>
#include <cstdint>

#include "llp/ring.h"
#include "rdmap/header.h"
#include "rdmap/request.h"
#include "rdmap/segment.h"

namespace ewarp::rdmap {

struct OutstandingRequest {
  SendRequest* request;     // null: the RTR
  std::uint32_t sink_stag;  // atomic: the Request Identifier
  std::uint32_t length;     // octets of the answer
  std::uint32_t msn = 0;
  std::uint32_t received = 0;  // octets of the answer so far
  bool is_atomic() const { return request != nullptr && rdmap::is_atomic(request->operation); }
};

// They are answered in the order in which they were sent (RFC 5040 section 5.5, RFC 7306 section 5), so only the oldest
// can receive anything. At most ORD at once; an RTR comes before any other and does not ask for ORD (RFC 6581 section
// 9.2). Each is named by a key of its own, never by a key of memory: a response can touch nothing but its request's
// memory (RFC 5042).
class OutstandingRequests {
 public:
  explicit OutstandingRequests(std::uint16_t ord) : ord_(ord) {}

  bool empty() const { return items_.empty(); }
  // Beside an RTR, which is the oldest.
  bool has_requests() const { return items_.size() > 1 || (!items_.empty() && items_.front().request != nullptr); }
  // Whether this one may begin now: its fence, and ORD.
  bool allow(const SendRequest& request) const {
    if (request.fence && !items_.empty()) return false;
    return !has_response(request.operation) || items_.size() < ord_;
  }
  // Returns the sink STag, or Request Identifier. request: null for the RTR. Requires: allow(), or the RTR.
  std::uint32_t push(SendRequest* request, std::uint32_t msn) {
    assert(request == nullptr ? items_.empty() : allow(*request));
    const std::uint32_t name = next_name_;
    next_name_ = next_name_ == 0xffffffffu ? 1 : next_name_ + 1;
    items_.push_back({request, name, request != nullptr ? request->length : 0, msn});
    return name;
  }

  // These require: not empty().
  const OutstandingRequest& oldest() const { return items_.front(); }
  void received(std::size_t octets) {
    OutstandingRequest& oldest = items_.front();
    assert(octets <= oldest.length - oldest.received);
    oldest.received += static_cast<std::uint32_t>(octets);
  }
  // Takes the oldest off; null: it was the RTR.
  SendRequest* pop() {
    SendRequest* request = items_.front().request;
    items_.pop_front();
    return request;
  }

  // The one that the peer's Terminate is about; null: none of these.
  SendRequest* named_by(const Terminate& message) const {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const OutstandingRequest& o = items_.at(i);
      if (o.request != nullptr && is_about_response(message, o.is_atomic(), o.sink_stag, o.msn)) return o.request;
    }
    return nullptr;
  }
  void clear() { items_.clear(); }

 private:
  std::uint16_t ord_;
  llp::Ring<OutstandingRequest> items_;
  std::uint32_t next_name_ = 1;
};

}  // namespace ewarp::rdmap
