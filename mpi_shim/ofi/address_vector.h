// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Address vectors. An fi_addr_t is an index, in maps and tables alike; it is not used again after a removal, so what
// endpoints remember of it never gets stale.
#pragma once

#include <rdma/fi_domain.h>

#include <atomic>
#include <map>
#include <optional>

#include "llp/annotations.h"
#include "llp/mutex.h"
#include "mpi_shim/ofi/domain.h"
#include "mpi_shim/ofi/table.h"

namespace ewarp::ofi {

class AddressVector : public fid_av {
 public:
  AddressVector(Domain& domain, fi_av_type type, void* context);
  ~AddressVector();
  static AddressVector& from(fid_av* v) { return *static_cast<AddressVector*>(v); }

  fi_addr_t insert(const channel::Address& address);
  // False: it is not there.
  bool remove(fi_addr_t at);
  std::optional<channel::Address> find(fi_addr_t at);
  // FI_ADDR_NOTAVAIL: nobody inserted it.
  fi_addr_t find(const channel::Address& address);

  std::atomic<int> users{0};
  const fi_av_type type;

 private:
  struct Entry {
    channel::Address address;
    int insertions = 0;
  };
  Domain& domain_;
  llp::Mutex mutex_;
  Table<Entry> entries_ EWARP_GUARDED_BY(mutex_);
  std::size_t size_ EWARP_GUARDED_BY(mutex_) = 0;
  std::map<channel::Address, fi_addr_t> by_address_ EWARP_GUARDED_BY(mutex_);
};

int open_address_vector(fid_domain* domain, fi_av_attr* attributes, fid_av** out, void* context) noexcept;

}  // namespace ewarp::ofi
