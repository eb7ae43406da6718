// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The order in which receives end (Tuning::ordered_completions). A send by HYBRID is done before its message was read,
// so a message that is sent afterwards could be received first, which no other protocol lets happen. Some users count
// on it: messages of one sender end in the order in which its sends were done.
//
// A peer's line has the receives whose Reads from HYBRID's buffers are under way, and behind them what came to its end
// meanwhile. Such a Read needs the peer's adapter and nothing of its program. A receive that waits for a rendezvous is
// never in the line, or a program that answers a later message before it goes on with an earlier one would hang.
#include "mpi_shim/channel/core/machine.h"

namespace ewarp::channel {

// A receive that has its message, or cannot get it. It is told at once, or behind those before it in the line.
void Machine::end(Operation& op, Error error) {
  assert(op.kind == Operation::Kind::receive);
  Link& link = *links_[op.peer];
  if (link.ends.empty()) return finish(op, error);
  const bool in_line = op.fetching_copy();
  assert(!op.releasing() || releasing_ > 0);
  if (op.releasing()) --releasing_;
  if (!in_line) link.ends.push_back(op);
  if (link.ends.front() != &op) counters_.add(Count::completions_held);
  op.fate = error;
  op.enter(Operation::State::held);
  tell_ends(link, false);
}

// From the head of the line as many as have ended; all: the rest as well, whose peer is gone.
void Machine::tell_ends(Link& link, bool all) {
  while (Operation* op = link.ends.front()) {
    const bool held = op->state() == Operation::State::held;
    if (!held && !all) return;
    link.ends.remove(*op);
    finish(*op, held ? op->fate : Error::peer_down);
  }
}

}  // namespace ewarp::channel
