// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The last changes of memory, written by one thread and read by others, none of which waits for another or allocates.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "mpi_shim/channel/memory/ranges.h"

namespace ewarp::channel {

struct Change {
  Range memory;
  bool emptied = false;  // it stays mapped, and the call that empties it may not have done so yet

  bool operator==(const Change&) const = default;
};

class ChangeLog {
 public:
  static constexpr std::size_t kKept = 1024;

  // How many there have been.
  std::uint64_t count() const { return count_.load(std::memory_order_acquire); }

  // By one thread only.
  void add(const Change& change) {
    const std::uint64_t n = count_.load(std::memory_order_relaxed);
    Slot& slot = slots_[n % kKept];
    // release: a reader that sees these values sees count_ as it was before, and that its slot is being written.
    slot.begin.store(change.memory.begin, std::memory_order_release);
    slot.end.store(change.memory.end, std::memory_order_release);
    slot.emptied.store(change.emptied, std::memory_order_release);
    count_.store(n + 1, std::memory_order_release);
  }

  // Calls each(Change) for the changes behind the first `seen`, and counts them there. A reader that came too late is
  // told of one change of everything.
  template <class Each>
  void since(std::uint64_t& seen, Each each) const {
    const std::uint64_t all = count();
    while (seen != all) {
      const Slot& slot = slots_[seen % kKept];
      const Change change{
          .memory = {slot.begin.load(std::memory_order_acquire), slot.end.load(std::memory_order_acquire)},
          .emptied = slot.emptied.load(std::memory_order_acquire)};
      if (count() - seen >= kKept) {
        seen = all;
        each(Change{.memory = Range::everything(), .emptied = true});
        return;
      }
      ++seen;
      each(change);
    }
  }

 private:
  struct Slot {
    std::atomic<std::uintptr_t> begin{0}, end{0};
    std::atomic<bool> emptied{false};
  };
  std::array<Slot, kKept> slots_;
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace ewarp::channel
