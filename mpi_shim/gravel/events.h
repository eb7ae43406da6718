// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the channel tells of ends, on any thread, for the thread that calls. Who tells cannot do anything about memory
// that is missing, so there is room for each event before what it tells of begins.
//
// Threading: add() comes from any thread, everything else from the one that calls.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "llp/annotations.h"
#include "llp/mutex.h"
#include "mpi_shim/channel/channel.h"

namespace ewarp::gravel {

struct Event {
  std::uint64_t label;
  channel::Error error;
};

class Events {
 public:
  // begin() gives whether something has begun whose end will be one add(). Where there is no memory for that nothing
  // begins: std::bad_alloc.
  template <class Begin>
  bool expect(Begin&& begin) {
    make_room(expected_ + 1);
    // Counted first: the end may come inside the call.
    ++expected_;
    bool begun = false;
    try {
      begun = begin();
    } catch (...) {
      --expected_;
      throw;
    }
    if (!begun) --expected_;
    return begun;
  }
  void add(const Event& event) {
    const llp::Guard lock(mutex_);
    assert(come_.size() < come_.capacity());
    come_.push_back(event);
  }
  // handle(event) for each that has come, once. Where one throws, those behind it are left for the next time.
  template <class Handle>
  void handle_all(Handle&& handle) {
    handle_taken(handle);  // those that were left
    {
      const llp::Guard lock(mutex_);
      taken_.swap(come_);
    }
    handle_taken(handle);
  }
  // Of which handle() has not been told.
  std::size_t expected() const { return expected_; }

 private:
  template <class Handle>
  void handle_taken(Handle& handle) {
    while (next_ < taken_.size()) {
      const Event event = taken_[next_++];
      assert(expected_ > 0);
      --expected_;
      handle(event);
    }
    taken_.clear();
    next_ = 0;
  }
  // Both lists change places.
  void make_room(std::size_t events) {
    if (events <= room_) return;
    const std::size_t wanted = std::max(events, 2 * room_);
    taken_.reserve(wanted);
    const llp::Guard lock(mutex_);
    come_.reserve(wanted);
    room_ = wanted;
  }

  std::size_t expected_ = 0, room_ = 0;
  std::vector<Event> taken_;  // by the thread that calls; those before next_ are handled
  std::size_t next_ = 0;
  llp::Mutex mutex_;
  std::vector<Event> come_ EWARP_GUARDED_BY(mutex_);
};

}  // namespace ewarp::gravel
