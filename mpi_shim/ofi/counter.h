// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counters of completions.
#pragma once

#include <rdma/fi_eq.h>

#include <atomic>

#include "llp/annotations.h"
#include "llp/mutex.h"
#include "mpi_shim/ofi/domain.h"
#include "mpi_shim/ofi/wait_set.h"
#include "mpi_shim/ofi/waiter.h"

namespace ewarp::ofi {

class Counter : public fid_cntr {
 public:
  Counter(Domain& domain, fi_wait_obj wait, void* context);
  ~Counter();
  static Counter& from(fid_cntr* c) { return *static_cast<Counter*>(c); }

  void add(std::uint64_t n) {
    value.fetch_add(n);
    waiter.wake();
  }
  void add_error(std::uint64_t n) {
    errors.fetch_add(n);
    waiter.wake();
  }
  // fi_cntr_read() and fi_cntr_readerr(). seen: of the same value.
  std::uint64_t read(const std::atomic<std::uint64_t>& which, std::atomic<std::uint64_t>& seen);
  // What the application does to it: fi_cntr_add(), fi_cntr_set() and their kin.
  void change(std::atomic<std::uint64_t>& which, std::uint64_t by);
  void set(std::atomic<std::uint64_t>& which, std::uint64_t to);
  // Completions and errors since it was opened, whatever the application did to the values. It wraps around.
  std::uint64_t counted();
  // 0, -FI_ETIMEDOUT, or -FI_EAVAIL if an error was counted meanwhile.
  int wait(std::uint64_t threshold, int timeout_ms);
  bool prepare_to_sleep();
  // fi_trywait(): false also where a value is another than the application has seen, which is told once.
  bool try_wait();

  std::atomic<std::uint64_t> value{0}, errors{0};
  std::atomic<std::uint64_t> seen_value{0}, seen_errors{0};  // by the application
  std::atomic<int> users{0};                                 // endpoints and poll sets
  Sources sources;
  Waiter waiter;
  const fi_wait_obj wait_object;
  Membership membership;

 private:
  bool has_unseen();

  Domain& domain_;
  llp::Mutex mutex_;  // of those that change the values by hand, and of counted()
  std::uint64_t by_hand_ EWARP_GUARDED_BY(mutex_) = 0;
};

int open_counter(fid_domain* domain, fi_cntr_attr* attributes, fid_cntr** out, void* context) noexcept;

}  // namespace ewarp::ofi
