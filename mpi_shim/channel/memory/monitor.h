// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which memory of this process was unmapped, moved or emptied, so that a registration of it is not used again: an
// adapter that pins goes on with the old pages. docs/design/channel.md, Memory, says why it can be relied on.
#pragma once

#include <string>

#include "mpi_shim/channel/memory/change_log.h"
#include "mpi_shim/channel/memory/ranges.h"

namespace ewarp::channel {

// Threading: any thread may call anything. Nothing here waits for a thread of the application.
class MemoryMonitor {
 public:
  virtual ~MemoryMonitor() = default;

  // From now on changes of this memory are told. False: it cannot be watched.
  // Requires: it stays mapped as it is during the call, and settled() was true since it has been.
  virtual bool watch(const Range& memory) = 0;
  // True: every change of watched memory that was complete before the call is in changes(). False: one is under way,
  // or the monitor is lost.
  virtual bool settled() = 0;
  // Ranges, as they come. They may be told late: also of memory that was mapped anew since.
  virtual const ChangeLog& changes() const = 0;
  // What settled() takes here.
  virtual double settled_ns() const = 0;

  // That of this process, which is there until the process ends. Null: there cannot be one here; *why says why not.
  static MemoryMonitor* of_process(std::string* why);
};

}  // namespace ewarp::channel
