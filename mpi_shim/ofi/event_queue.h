// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Event queues: what applications write to them, and what becomes of addresses that are inserted with FI_EVENT. There
// are no other events of ours: connections are made unasked.
#pragma once

#include <rdma/fi_eq.h>

#include <atomic>
#include <deque>
#include <vector>

#include "llp/annotations.h"
#include "llp/mutex.h"
#include "mpi_shim/ofi/fabric.h"
#include "mpi_shim/ofi/wait_set.h"
#include "mpi_shim/ofi/waiter.h"

namespace ewarp::ofi {

class EventQueue : public fid_eq {
 public:
  EventQueue(Fabric& fabric, fi_wait_obj wait, bool writable, void* context);
  ~EventQueue();
  static EventQueue& from(fid_eq* q) { return *static_cast<EventQueue*>(q); }

  // By the application.
  ssize_t write(std::uint32_t event, const void* buffer, std::size_t length);
  // By the provider.
  void tell(std::uint32_t event, const fi_eq_entry& entry);
  void tell_error(const fi_eq_err_entry& error);
  // -FI_EAVAIL: an error is next.
  ssize_t read(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags);
  ssize_t read_error(fi_eq_err_entry* out, std::uint64_t flags);
  ssize_t read_waiting(std::uint32_t* event, void* buffer, std::size_t length, int timeout_ms, std::uint64_t flags);
  bool has_some();
  bool prepare_to_sleep();

  std::atomic<int> users{0};  // address vectors
  Waiter waiter;
  const fi_wait_obj wait_object;
  Membership membership;

 private:
  struct Event {
    std::uint32_t kind;
    std::vector<std::byte> data;
    bool is_error = false;  // then the data is an fi_eq_err_entry
  };
  void add(std::uint32_t event, const void* data, std::size_t length, bool is_error);
  Fabric& fabric_;
  const bool writable_;
  llp::Mutex mutex_;
  std::deque<Event> events_ EWARP_GUARDED_BY(mutex_);
};

int open_event_queue(fid_fabric* fabric, fi_eq_attr* attributes, fid_eq** out, void* context) noexcept;

}  // namespace ewarp::ofi
