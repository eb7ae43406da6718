// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// HYBRID: the sender copies the message into a buffer of the channel's and is done; the receiver Reads it from there.
// That the buffer is free again rides along with later messages.
#include <algorithm>
#include <cassert>

#include "mpi_shim/channel/core/machine.h"

namespace ewarp::channel {

// Nothing if no buffer is free.
std::optional<HybridBuffers::Buffer> Machine::copy(PeerId peer, Octets data) {
  assert(data.size() <= tuning_.hybrid_threshold);
  const auto buffer = hybrid_buffers_.take(peer);
  if (buffer) std::copy_n(data.begin(), data.size(), buffer->data);
  return buffer;
}

void Machine::send_hybrid(Operation& op, const HybridBuffers::Buffer& copy, std::uint8_t declined) {
  counters_.add(Count::hybrid);
  Outgoing& o = pool_.take(Outgoing::What::send, op.peer);
  o.message.kind = wire::Kind::sender_ready;
  o.message.flags = static_cast<std::uint8_t>(wire::flag::kHybrid | declined);
  o.message.tag = op.tag;
  o.message.number = op.number;
  o.message.size = op.length;
  o.message.remote = copy.remote;
  o.message.id = copy.id;
  attach(o.message, op);
  links_[op.peer]->push(o);
  finish(op, Error::none);
}

}  // namespace ewarp::channel
