// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Poll sets: which of several completion queues and counters have something new.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include <vector>

#include "llp/annotations.h"
#include "llp/mutex.h"
#include "mpi_shim/ofi/domain.h"
#include "mpi_shim/ofi/watched.h"

namespace ewarp::ofi {

class PollSet : public fid_poll {
 public:
  PollSet(Domain& domain, void* context);
  // Its members are no longer in use by it.
  ~PollSet();
  static PollSet& from(fid_poll* s) { return *static_cast<PollSet*>(s); }

  // A queue or counter once. 0 or -FI_EINVAL.
  int add(struct fid& object);
  int remove(struct fid& object);
  // The contexts of at most `count` members that have something new; returns how many. The next call begins behind the
  // member that was looked at last.
  int poll(void** contexts, int count);

 private:
  Domain& domain_;
  llp::Mutex mutex_;  // taken before those of the members
  std::vector<Watched> members_ EWARP_GUARDED_BY(mutex_);
  std::size_t next_ EWARP_GUARDED_BY(mutex_) = 0;  // counts on without end
};

int open_poll_set(fid_domain* domain, fi_poll_attr* attributes, fid_poll** out) noexcept;

}  // namespace ewarp::ofi
