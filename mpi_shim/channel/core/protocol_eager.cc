// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// EAGER: the message goes along with its header, to whatever receive there is.
#include <algorithm>

#include "mpi_shim/channel/core/machine.h"

namespace ewarp::channel {

// From the user's buffer if the path takes it now. Otherwise a copy lets the send be done, while there are not too
// many.
void Machine::send_eager(Operation& op, bool inject) {
  counters_.add(Count::eager);
  Link& link = *links_[op.peer];
  Outgoing& o = pool_.take(Outgoing::What::send, op.peer);
  o.message.kind = wire::Kind::eager;
  o.message.tag = op.tag;
  o.message.number = op.number;
  o.message.size = op.length;
  o.data = op.data;
  o.length = op.length;
  o.inject = inject;
  attach(o.message, op);
  if (op.confirm) {
    o.message.extras |= wire::extra::kConfirm;
    o.message.id = Operations::wire_id(op) | wire::kRequestId;
    op.enter(Operation::State::confirming);
    link.push(o);
    return;
  }
  o.operation = &op;
  const bool gone = link.push(o);
  const bool copied = gone && o.copied;
  if (!copied && !inject && (gone || link.copied + op.length > tuning_.copy_limit)) return;
  if (!gone) link.copy_payload(o);
  o.operation = nullptr;
  finish(op, Error::none);
}

void Machine::deliver_octets(Operation& op, Octets payload) {
  std::copy_n(payload.begin(), std::min(payload.size(), op.length), op.data);
  end(op, Error::none);
}

}  // namespace ewarp::channel
