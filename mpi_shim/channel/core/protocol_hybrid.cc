// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// HYBRID: the sender copies the message into a buffer of the channel's and is done; the receiver Reads it from there.
// That the buffer is free again rides along with later messages.
#include <algorithm>
#include <cassert>

#include "mpi_shim/channel/core/machine.h"

namespace ewarp::channel {

void Machine::send_hybrid(Operation& op, const HybridBuffers::Buffer& buffer, std::uint8_t declined) {
  assert(op.length <= tuning_.hybrid_threshold);
  counters_.add(Count::hybrid);
  std::copy_n(op.data, op.length, buffer.data);
  Outgoing& o = pool_.take(Outgoing::What::send, op.peer);
  o.message.kind = wire::Kind::sender_ready;
  o.message.flags = static_cast<std::uint8_t>(wire::flag::kHybrid | declined);
  o.message.tag = op.tag;
  o.message.number = op.number;
  o.message.size = op.length;
  o.message.remote = buffer.remote;
  o.message.id = buffer.id;
  attach(o.message, op);
  links_[op.peer]->push(o);
  finish(op, Error::none);
}

}  // namespace ewarp::channel
