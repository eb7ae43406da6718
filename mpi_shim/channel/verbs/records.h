// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Requests that the adapter has, by the number that is the id of their work request.
#pragma once

#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "mpi_shim/channel/core/room.h"
#include "mpi_shim/channel/verbs/request_memory.h"

namespace ewarp::channel {

struct Record {
  std::uint32_t serial = 0;  // of its connection; 0: there is no such request
  bool told = true;          // somebody waits for the completion
  Cookie cookie = 0;
  RequestMemory::Loan loan = {};
};

class Records {
 public:
  // The id for the next request that is posted; the same one until it is put(). Only the first call of those throws,
  // std::bad_alloc.
  std::uint32_t next() {
    if (free_.empty()) {
      make_room(all_, free_);
      free_.push_back(static_cast<std::uint32_t>(all_.size()));
      all_.emplace_back();
    }
    return free_.back();
  }
  // The adapter has taken it. Requires: next() gave this id.
  void put(std::uint32_t id, const Record& record) {
    assert(!free_.empty() && free_.back() == id);
    assert(record.serial != 0 && all_[id].serial == 0);
    free_.pop_back();
    all_[id] = record;
  }
  // It is complete. Requires: it was put.
  Record take(std::uint32_t id) {
    assert(id < all_.size() && all_[id].serial != 0);
    free_.push_back(id);
    return std::exchange(all_[id], Record{});
  }
  // f(record) for each of the `count` requests of a connection that will not come back. f may put others.
  template <class F>
  void take_all_of(std::uint32_t serial, std::uint32_t count, F&& f) {
    for (std::uint32_t id = 0; count > 0 && id < all_.size(); ++id) {
      if (all_[id].serial != serial) continue;
      --count;
      f(take(id));
    }
    assert(count == 0);
  }

 private:
  std::vector<Record> all_;
  std::vector<std::uint32_t> free_;
};

}  // namespace ewarp::channel
