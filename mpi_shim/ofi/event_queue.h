// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Event queues: what applications write to them. This provider has no events of its own; it connects unasked, and
// inserts addresses at once.
#pragma once

#include <rdma/fi_eq.h>

#include <atomic>
#include <deque>
#include <vector>

#include "llp/annotations.h"
#include "llp/mutex.h"
#include "mpi_shim/ofi/fabric.h"
#include "mpi_shim/ofi/waiter.h"

namespace ewarp::ofi {

class EventQueue : public fid_eq {
 public:
  EventQueue(Fabric& fabric, fi_wait_obj wait, bool writable, void* context);
  ~EventQueue();
  static EventQueue& from(fid_eq* q) { return *static_cast<EventQueue*>(q); }

  ssize_t write(std::uint32_t event, const void* buffer, std::size_t length);
  ssize_t read(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags);
  ssize_t read_waiting(std::uint32_t* event, void* buffer, std::size_t length, int timeout_ms, std::uint64_t flags);
  bool prepare_to_sleep();

  Waiter waiter;
  const fi_wait_obj wait_object;

 private:
  struct Event {
    std::uint32_t kind;
    std::vector<std::byte> data;
  };
  Fabric& fabric_;
  const bool writable_;
  llp::Mutex mutex_;
  std::deque<Event> events_ EWARP_GUARDED_BY(mutex_);
};

int open_event_queue(fid_fabric* fabric, fi_eq_attr* attributes, fid_eq** out, void* context) noexcept;

}  // namespace ewarp::ofi
