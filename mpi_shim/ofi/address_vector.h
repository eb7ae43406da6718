// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Address vectors. An fi_addr_t is an index, in maps and tables alike; it is not used again after a removal, so the
// peer that endpoints remember of it never gets stale.
#pragma once

#include <rdma/fi_domain.h>

#include <atomic>
#include <map>
#include <optional>

#include "llp/annotations.h"
#include "llp/mutex.h"
#include "mpi_shim/ofi/domain.h"
#include "mpi_shim/ofi/event_queue.h"
#include "mpi_shim/ofi/table.h"

namespace ewarp::ofi {

class AddressVector : public fid_av {
 public:
  // events: insertions end with an event of the queue that is bound.
  AddressVector(Domain& domain, fi_av_type type, bool events, void* context);
  ~AddressVector();
  static AddressVector& from(fid_av* v) { return *static_cast<AddressVector*>(v); }

  // FI_EVENT. 0, or a negative code.
  int bind(EventQueue& queue);
  fi_addr_t insert(const channel::Address& address);
  // False: it is not there.
  bool remove(fi_addr_t at);
  std::optional<channel::Address> find(fi_addr_t at);
  // It was inserted, and not removed. Takes no lock.
  bool has(fi_addr_t at) const {
    const Entry* e = entries_.find(at);
    return e != nullptr && e->insertions.load() > 0;
  }
  // How often an address was inserted that was there already: another peer may have it by now. Takes no lock.
  unsigned repeated() const { return repeated_.load(std::memory_order_acquire); }
  // FI_ADDR_NOTAVAIL: nobody inserted it.
  fi_addr_t find(const channel::Address& address);

  std::atomic<int> users{0};
  const fi_av_type type;
  const bool has_events;
  // Null: none is bound.
  EventQueue* queue() const { return queue_.load(); }

 private:
  struct Entry {
    channel::Address address;
    std::atomic<int> insertions{0};  // written with the lock held
  };
  Domain& domain_;
  std::atomic<EventQueue*> queue_{nullptr};
  std::atomic<unsigned> repeated_{0};
  llp::Mutex mutex_;
  Table<Entry> entries_;  // changed with the lock held
  std::size_t size_ EWARP_GUARDED_BY(mutex_) = 0;
  std::map<channel::Address, fi_addr_t> by_address_ EWARP_GUARDED_BY(mutex_);
};

int open_address_vector(fid_domain* domain, fi_av_attr* attributes, fid_av** out, void* context) noexcept;

}  // namespace ewarp::ofi
