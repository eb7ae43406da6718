// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Wait sets: sleeping until one of several queues and counters has something.
#pragma once

#include <rdma/fi_eq.h>

#include <vector>

#include "llp/annotations.h"
#include "llp/mutex.h"
#include "mpi_shim/ofi/fabric.h"
#include "mpi_shim/ofi/watched.h"

namespace ewarp::ofi {

class WaitSet : public fid_wait {
 public:
  WaitSet(Fabric& fabric, fi_wait_obj wait, void* context);
  ~WaitSet();
  static WaitSet& from(fid_wait* s) { return *static_cast<WaitSet*>(s); }

  // False: there is no descriptor to be had.
  bool open();
  // Readable when that of a member is.
  int fd() const { return fd_; }
  bool has_members();
  // fd: the member's, which becomes readable after Watched::prepare_to_sleep(). False: no memory of the kernel's.
  bool add(struct fid& member, int fd);
  void remove(const struct fid& member, int fd);

  // 0, or -FI_ETIMEDOUT. Negative: without end.
  int wait(int timeout_ms);
  // False: a member has something.
  bool prepare_to_sleep();

  const fi_wait_obj wait_object;

 private:
  void progress();
  bool has_news();
  bool arm();

  Fabric& fabric_;
  int fd_ = -1;       // of epoll
  llp::Mutex mutex_;  // taken before those of the members
  std::vector<Watched> members_ EWARP_GUARDED_BY(mutex_);
};

// That an object belongs to a set, from its opening to its end. Members are opened with FI_WAIT_SET.
class Membership {
 public:
  Membership() = default;
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  // Does nothing for other wait objects. 0, or a negative code.
  int join(fi_wait_obj wanted, fid_wait* set, struct fid& member, int fd);

 private:
  WaitSet* set_ = nullptr;
  const struct fid* member_ = nullptr;
  int fd_ = -1;
};

int open_wait_set(fid_fabric* fabric, fi_wait_attr* attributes, fid_wait** out) noexcept;

// fi_trywait.
int try_wait(fid_fabric* fabric, fid** fids, int count) noexcept;

}  // namespace ewarp::ofi
