// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Sends and Writes that were produced, and of which the kernel has not taken all octets.
#pragma once

#include <cassert>
#include <cstdint>

#include "llp/ring.h"
#include "rdmap/request.h"

namespace ewarp::rdmap {

// Positions count octets of the stream since its first FPDU. Requests are complete in the order in which they were
// produced (RFC 5040 section 5.5).
class Unacknowledged {
 public:
  bool empty() const { return items_.empty(); }
  std::size_t size() const { return items_.size(); }

  // So many more octets of the stream are waiting to be written.
  void produced(std::size_t octets) { produced_ += octets; }
  // The request's last octet is the last that was produced. failed: it ends with this error, and no further octets of
  // it follow; until then those that were produced may lie in its memory.
  void push(SendRequest& request, Status failed = Status::success) {
    assert(items_.empty() || items_.back().end < produced_);
    items_.push_back({produced_, &request, failed});
  }
  // The kernel took the next octets.
  void taken(std::size_t octets) {
    assert(octets <= produced_ - taken_);
    taken_ += octets;
  }
  struct Item {
    std::uint64_t end;  // position
    SendRequest* request;
    Status status;
  };
  // Takes off the oldest request if all of it was taken; request is null: it was not, or there is none.
  Item pop_taken() {
    if (items_.empty() || items_.front().end > taken_) return {};
    const Item item = items_.front();
    items_.pop_front();
    return item;
  }
  // The one that has failed, if its octets were not taken; it is the last.
  SendRequest* failed(Status* status) {
    if (items_.empty() || items_.back().status == Status::success) return nullptr;
    *status = items_.back().status;
    return items_.back().request;
  }

  // Position 0 is the oldest. Requires: i < size().
  SendRequest& at(std::size_t i) { return *items_.at(i).request; }
  // The requests are forgotten; the octets are not.
  void clear() { items_.clear(); }

 private:
  std::uint64_t produced_ = 0, taken_ = 0;
  llp::Ring<Item> items_;
};

}  // namespace ewarp::rdmap
