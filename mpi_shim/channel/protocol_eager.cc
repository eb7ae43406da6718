// EAGER: the message goes along with its header, to whatever receive there is.
#include <algorithm>

#include "mpi_shim/channel/machine.h"

namespace ewarp::channel {

// From the user's buffer if the path takes it now. Otherwise a copy lets the send be done, while there are not too
// many.
void Machine::send_eager(Operation& op) {
  counters_.add(Count::eager);
  Link& link = *links_[op.peer];
  Outgoing& o = pool_.take(Outgoing::What::send, op.peer);
  o.message.kind = wire::Kind::eager;
  o.message.tag = op.tag;
  o.message.number = op.number;
  o.message.size = op.length;
  o.data = op.data;
  o.length = op.length;
  o.operation = &op;
  if (link.push(o) || link.copied + op.length > tuning_.copy_limit) return;
  link.copy_payload(o);
  o.operation = nullptr;
  finish(op, Error::none);
}

void Machine::deliver_octets(Operation& op, Octets payload) {
  std::copy_n(payload.begin(), std::min(payload.size(), op.length), op.data);
  finish(op, Error::none);
}

}  // namespace ewarp::channel
