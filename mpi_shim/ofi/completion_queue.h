// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Completion queues. Entries come from endpoints, under their locks; errors wait in a queue of their own.
#pragma once

#include <rdma/fi_eq.h>

#include <atomic>
#include <deque>
#include <vector>

#include "llp/annotations.h"
#include "llp/mutex.h"
#include "mpi_shim/ofi/domain.h"
#include "mpi_shim/ofi/wait_set.h"
#include "mpi_shim/ofi/waiter.h"

namespace ewarp::ofi {

class Endpoint;

// Whom a message came from; an address only when somebody asks.
struct Origin {
  Endpoint* endpoint = nullptr;
  channel::PeerId peer = channel::kAnySource;
};

class CompletionQueue : public fid_cq {
 public:
  CompletionQueue(Domain& domain, const fi_cq_attr& attributes, void* context);
  ~CompletionQueue();
  static CompletionQueue& from(fid_cq* q) { return *static_cast<CompletionQueue*>(q); }

  // Without memory for one more entry, the queue is overrun: behind what it has by then, each read fails with
  // FI_EOVERRUN.
  void add(const fi_cq_tagged_entry& entry, Origin origin) noexcept;
  void add_error(const fi_cq_err_entry& entry) noexcept;
  // Its peers cannot be named any more: nobody asks it for one when this returns.
  void forget(const Endpoint& endpoint);

  ssize_t read(void* buffer, std::size_t count, fi_addr_t* sources);
  ssize_t read_error(fi_cq_err_entry* out);
  ssize_t read_waiting(void* buffer, std::size_t count, fi_addr_t* sources, int timeout_ms);
  int signal();
  // Something to read, without going to the adapter.
  bool has_some() const { return waiting_.load() > 0 || has_error(); }
  // False: there is something to read.
  bool prepare_to_sleep();

  Sources sources;
  std::atomic<int> users{0};  // endpoints and poll sets
  Waiter waiter;
  const fi_wait_obj wait_object;
  Membership membership;

 private:
  struct Entry {
    fi_cq_tagged_entry data;
    Origin origin;
  };
  std::size_t take_entries(void* buffer, std::size_t count, std::vector<Origin>* origins);
  std::size_t take_with_sources(void* buffer, std::size_t count, fi_addr_t* sources);
  ssize_t take(void* buffer, std::size_t count, fi_addr_t* sources);
  void poll();
  bool may_sleep();
  void grow() EWARP_REQUIRES(mutex_);
  bool has_error() const { return failed_.load() > 0 || overrun_.load(); }

  Domain& domain_;
  const std::size_t entry_size_;  // what read() writes
  llp::Mutex naming_;             // held while origins become addresses: taken before endpoints' locks and the next one
  llp::Mutex mutex_;              // taken under endpoints' locks
  std::vector<Entry> ring_ EWARP_GUARDED_BY(mutex_);  // a power of two, so that positions wrap
  std::size_t first_ EWARP_GUARDED_BY(mutex_) = 0;    // counts on without end
  struct Failure {
    fi_cq_err_entry entry;
    std::size_t position;  // in the ring: those before it are read first
  };
  std::deque<Failure> errors_ EWARP_GUARDED_BY(mutex_);
  // Written with the lock held.
  std::atomic<std::size_t> waiting_{0}, failed_{0};  // entries; looked at without the lock
  std::atomic<bool> overrun_{false};                 // nothing more is taken
  std::atomic<bool> signalled_{false};
  std::atomic<bool> had_some_{false};  // the last read() did
  std::atomic<int> unpolled_{0};       // reads since one went to the adapter
};

int open_completion_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** out, void* context) noexcept;

}  // namespace ewarp::ofi
