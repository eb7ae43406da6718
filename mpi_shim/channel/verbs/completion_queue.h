// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The completion queue of all connections of an endpoint, and the descriptor that becomes readable when something
// comes.
//
// Threading: the endpoint's lock is held in every call but take_events().
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <span>

#include "mpi_shim/channel/core/transport.h"
#include "mpi_shim/channel/verbs/failed.h"

namespace ewarp::channel {

class CompletionQueue {
 public:
  CompletionQueue() = default;
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // most: completions that a queue of this device holds.
  Refusal open(ibv_context* context, int most);
  ibv_cq* get() const { return cq_; }
  int fd() const { return channel_->fd; }

  // Room for so many requests more, so that the queue is never too short. False, and errno: there cannot be.
  bool reserve(std::size_t requests);
  // Requires: they were reserved.
  void release(std::size_t requests);

  // How many completions are in `out` now.
  std::size_t poll(std::span<ibv_wc> out);
  // From here on the descriptor becomes readable when that comes; poll() once more before sleeping.
  void arm(Wake wake);
  // Takes the events that made it readable. Needs no lock, but one caller at a time.
  void take_events();

 private:
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::size_t size_ = 0, reserved_ = 0;  // reserved_ <= size_
  unsigned unacknowledged_ = 0;
};

}  // namespace ewarp::channel
