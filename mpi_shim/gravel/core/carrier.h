// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What Gravel asks of the one who carries its octets: one-sided transfers between processes. What is asked for one peer
// is placed there in this order, but for gets. Who finds no memory throws std::bad_alloc, and has done nothing.
// Implemented over the channel, and in tests by wires in virtual time.
#pragma once

#include "mpi_shim/gravel/core/types.h"

namespace ewarp::gravel {

class Carrier {
 public:
  virtual ~Carrier() = default;
  // Into our board at this peer. The octets are copied. False: the path is full.
  virtual bool enter(Proc to, std::size_t offset, Octets octets) = 0;
  // Each ends with one Machine::on_moved(request). False: the path is full.
  virtual bool put(Proc to, const Local& source, Remote target, RequestId request) = 0;
  virtual bool get(Proc from, const Local& target, Remote source, RequestId request) = 0;
};

}  // namespace ewarp::gravel
