// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// EAGER: the message goes along with its header, to whatever receive there is. A long one goes in pieces that the
// receives of the transport take: the first has the header, the others follow as MORE, and nothing of the sender's but
// notes comes between them. The first piece is matched; what comes behind it goes where the first one went.
#include <algorithm>
#include <cassert>
#include <utility>

#include "mpi_shim/channel/core/machine.h"

namespace ewarp::channel {

// --- the sender ---

// What push_message() takes of memory for so much payload is there until something else is pushed.
void Machine::reserve_message(std::size_t octets) {
  const std::size_t piece = tuning_.piece(), count = octets <= piece ? 1 : (octets - 1) / piece + 1;
  pool_.reserve(count);
  pieces_.reserve(count);
}

// first: all but the payload.
void Machine::push_message(Outgoing& first, Octets payload) {
  Link& link = *links_[first.peer];
  Outgoing* o = &first;
  pieces_.clear();
  for (;;) {
    const Octets piece = payload.first(std::min(payload.size(), tuning_.piece()));
    payload = payload.subspan(piece.size());
    o->data = const_cast<std::byte*>(piece.data());
    o->length = piece.size();
    o->inject = first.inject;
    if (o != &first) o->message.kind = wire::Kind::more, o->message.size = piece.size();
    pieces_.push_back(o);
    link.push(*o, !payload.empty());
    if (payload.empty()) return;
    o = &pool_.take(Outgoing::What::send, first.peer);
  }
}

// Octets of the pieces that wait.
std::size_t Machine::waiting_octets() const {
  std::size_t n = 0;
  for (const Outgoing* o : pieces_) n += o->handed_over ? 0 : o->length;
  return n;
}

// The pieces that wait need the user's buffer no more. False: some do.
bool Machine::copy_waiting() {
  return std::all_of(pieces_.begin(), pieces_.end(),
                     [this](Outgoing* o) { return o->handed_over || links_[o->peer]->copy_payload(*o); });
}

// The caller has its buffer back, and there is no memory for what was in it.
void Machine::lose_message(PeerId peer) {
  transport_.fail(peer, "no memory for a message");
}

// The last piece that is still sent out of the user's buffer; null if none is.
Outgoing* Machine::last_in_place() const {
  const auto found = std::find_if(pieces_.rbegin(), pieces_.rend(),
                                  [](const Outgoing* o) { return !o->copy && !(o->handed_over && o->copied); });
  return found == pieces_.rend() ? nullptr : *found;
}

// From the user's buffer if the path takes it now. Otherwise a copy lets the send be done, while there are not too
// many.
void Machine::send_eager(Operation& op, bool inject) {
  counters_.add(Count::eager);
  Outgoing& first = pool_.take(Outgoing::What::send, op.peer);
  first.message.kind = wire::Kind::eager;
  first.message.tag = op.tag;
  first.message.number = op.number;
  first.message.size = op.length;
  first.inject = inject;
  attach(first.message, op);
  if (op.confirm) {
    first.message.extras |= wire::extra::kConfirm;
    first.message.id = Operations::wire_id(op) | wire::kRequestId;
    op.enter(Operation::State::confirming);
  }
  push_message(first, op.buffer());
  const bool copies = inject || (!op.confirm && links_[op.peer]->copied + waiting_octets() <= tuning_.copy_limit);
  if (copies && !copy_waiting() && inject) lose_message(op.peer);
  if (op.confirm) return;
  if (Outgoing* last = last_in_place())
    last->operation = &op;
  else
    finish(op, Error::none);
}

// --- the receiver ---

// rest: what has not come yet, if that is anything.
void Machine::deliver_octets(Operation& op, Octets payload, Incomplete* rest) {
  std::copy_n(payload.begin(), std::min(payload.size(), op.length), op.data);
  if (rest == nullptr) return end(op, Error::none);
  op.enter(Operation::State::expected);
  rest->receive = &op;
}

void Machine::on_more(PeerId peer, Octets payload) {
  Incomplete& rest = links_[peer]->incomplete;
  assert(payload.size() <= rest.missing);
  const std::size_t at = rest.first.size - rest.missing;
  rest.missing -= payload.size();
  if (Operation* op = rest.receive; op != nullptr && at < op->length)
    std::copy_n(payload.begin(), std::min(payload.size(), op->length - at), op->data + at);
  if (Stored* stored = rest.stored) {
    std::copy(payload.begin(), payload.end(), stored->payload.get() + at);
    stored->missing = rest.missing;
  }
  if (rest.first.kind != wire::Kind::eager) rest.octets.insert(rest.octets.end(), payload.begin(), payload.end());
  if (rest.missing == 0) came_in_full(peer, std::exchange(rest, {}));
}

void Machine::came_in_full(PeerId peer, const Incomplete& message) {
  const wire::Message& m = message.first;
  if (message.stored != nullptr) message.stored->incomplete = nullptr;
  if (m.has_extra(wire::extra::kConfirm)) links_[peer]->release(m.id, true);
  if (message.receive != nullptr) end(*message.receive, Error::none);
  if (m.kind == wire::Kind::call) on_call(peer, m, message.octets);
  if (m.kind == wire::Kind::answer) on_answer(peer, m, message.octets);
}

}  // namespace ewarp::channel
