// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Changes of memory as the kernel tells them: by the events of a userfaultfd (UNMAP, REMAP, REMOVE), whoever makes the
// call, the C library included. No fault is ever handled: mappings are registered for write protection, and no page is
// protected.
//
// A call that changes watched memory returns when its event was read. So a thread of our own reads, which takes no
// lock, allocates nothing, and has a descriptor that the application cannot close. While the call has not returned, the
// memory may already be another's: the kernel says whether one is under way (EAGAIN), and `reading_` whether one was
// read and is not in the log yet.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "llp/annotations.h"
#include "llp/mutex.h"
#include "mpi_shim/channel/memory/monitor.h"

namespace ewarp::channel {

class UserfaultMonitor final : public MemoryMonitor {
 public:
  // Null, and why. It is never destroyed: what was watched stays so, and would stop whoever unmaps it.
  static UserfaultMonitor* start(std::string* why);

  bool watch(const Range& memory) override EWARP_EXCLUDES(mutex_);
  bool settled() override;
  const ChangeLog& changes() const override { return log_; }
  double settled_ns() const override { return settled_ns_; }

 private:
  static constexpr std::size_t kMostRefused = 64, kMostEmptied = 256;
  static constexpr int kTurns = 4;  // that the reader is given to end what it does
  static constexpr std::chrono::milliseconds kEmptying{100}, kRefusing{1000};

  UserfaultMonitor() = default;

  // The steps of start(); 0 or an errno.
  int open();
  int start_reader();
  bool works();

  bool register_mapping(const Range& mapping);
  bool register_mappings(const Range& memory) EWARP_REQUIRES(mutex_);
  void forget_changed() EWARP_REQUIRES(mutex_);
  bool known_as_refused(const Range& memory) EWARP_REQUIRES(mutex_);
  void note_emptied(const Range& memory) EWARP_REQUIRES(mutex_);
  bool being_emptied(const Range& memory) EWARP_REQUIRES(mutex_);

  static void* read_events(void* self);
  int take_own_descriptor();
  void read_some();

  ChangeLog log_;
  std::atomic<int> reading_{0};    // 1: an event may have been read that is not in the log yet
  std::atomic<bool> lost_{false};  // for good: the application closed our descriptor
  std::atomic<int> ready_{-1};     // of the reader: -1, then 0 or an errno
  int reader_fd_ = -1;             // in the reader's own table of descriptors
  std::atomic<int> fd_{-1};        // the same in the application's
  double settled_ns_ = 0;

  llp::Mutex mutex_;  // never taken by the reader
  Ranges watched_ EWARP_GUARDED_BY(mutex_);
  Ranges refused_ EWARP_GUARDED_BY(mutex_);  // memory that cannot be watched, as far as is known
  std::chrono::steady_clock::time_point refused_until_ EWARP_GUARDED_BY(mutex_);
  // The kernel tells before it empties. So nothing is watched there until the call has had its time.
  Ranges emptied_ EWARP_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point emptied_until_ EWARP_GUARDED_BY(mutex_);
  std::uint64_t seen_ EWARP_GUARDED_BY(mutex_) = 0;  // of log_
};

}  // namespace ewarp::channel
