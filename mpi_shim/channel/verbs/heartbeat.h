// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Octets that peers may read to see that this end's adapter lives, and where the answers to our own such Reads go.
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>

#include "mpi_shim/channel/core/wire.h"
#include "mpi_shim/channel/verbs/element.h"
#include "mpi_shim/channel/verbs/failed.h"

namespace ewarp::channel {

class Heartbeat {
 public:
  Heartbeat() = default;
  ~Heartbeat() {
    for (ibv_mr* memory : {source_memory_, sink_memory_})
      if (memory != nullptr) ibv_dereg_mr(memory);
  }
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  Refusal open(ibv_pd* pd) {
    assert(source_memory_ == nullptr && sink_memory_ == nullptr);
    source_memory_ = ibv_reg_mr(pd, &source_, sizeof source_, IBV_ACCESS_REMOTE_READ);
    sink_memory_ = ibv_reg_mr(pd, &sink_, sizeof sink_, kSinkAccess);
    return source_memory_ == nullptr || sink_memory_ == nullptr ? refused("ibv_reg_mr") : Refusal();
  }
  // Requires: open().
  wire::Remote remote() const {
    return {.address = reinterpret_cast<std::uint64_t>(&source_), .key = source_memory_->rkey};
  }
  ibv_sge sink() const { return element(&sink_, sizeof sink_, sink_memory_->lkey); }

 private:
  std::uint64_t source_ = 0, sink_ = 0;
  ibv_mr* source_memory_ = nullptr;
  ibv_mr* sink_memory_ = nullptr;
};

}  // namespace ewarp::channel
