// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// SEND_RNDV: the sender announces its buffer (SENDER_READY). By Read, the receiver fetches the data and releases the
// sender; by Write, it answers with its own buffer (RECEIVER_READY) and the sender writes there. The first octets go
// with SENDER_READY then, as many as a receive takes, so that something is on its way while the answer is awaited. A
// receiver that has a receive for the message stores them, and the rest is written; one that has none drops them, so
// what nobody has asked for takes no memory, and gets the whole.
#include <algorithm>

#include "mpi_shim/channel/core/machine.h"

namespace ewarp::channel {

void Machine::send_ready(Operation& op, std::uint8_t declined) {
  Outgoing& o = pool_.take(Outgoing::What::send, op.peer);
  o.message.kind = wire::Kind::sender_ready;
  o.message.flags = static_cast<std::uint8_t>((tuning_.rendezvous_by_read ? wire::flag::kByRead : 0) | declined);
  o.message.tag = op.tag;
  o.message.number = op.number;
  o.message.size = op.length;
  if (op.memory != nullptr) o.message.remote = op.memory->remote;
  o.message.id = Operations::wire_id(op) | wire::kRequestId;
  attach(o.message, op);
  if (o.message.may_have_head()) {
    op.head = std::min(op.length, tuning_.piece());
    o.data = op.data;
    o.length = op.head;
    if (op.head > 0) counters_.add(Count::heads);
  }
  op.enter(Operation::State::waiting);
  waiting_.push_back(op);
  links_[op.peer]->push(o);
}

// --- by Read, also of HYBRID's buffers ---

void Machine::fetch(Operation& op, const wire::Message& m) {
  op.enter(Operation::State::fetching);
  op.release_id = m.id;
  if (op.releasing()) ++releasing_;
  if (op.fetching_copy() && tuning_.ordered_completions) links_[op.peer]->ends.push_back(op);
  op.posted_at = transport_.now();
  const auto n = std::min<std::uint64_t>(m.size, op.length);
  if (n == 0) return fetched(op);
  if (!expose(op, Transport::Reach::written)) {
    links_[op.peer]->release(m.id, true);
    return end(op, Error::no_memory);
  }
  Outgoing& o = push_pieces(op.peer, Outgoing::What::read, op.buffer().first(n), op.memory, m.remote);
  o.operation = &op;
  links_[op.peer]->push(o);
}

// A sender waits for its request, but not for a buffer of the channel's.
void Machine::fetched(Operation& op) {
  if (op.memory != nullptr) round_trip_ns_ = std::min(round_trip_ns_, transport_.now() - op.posted_at);
  links_[op.peer]->release(op.release_id, (op.release_id & wire::kRequestId) != 0);
  end(op, Error::none);
}

void Machine::on_sender_released(PeerId peer, std::uint32_t id) {
  Operation* op = operations_.find_wire(id & ~wire::kRequestId);
  if (op == nullptr || op->peer != peer || op->kind != Operation::Kind::send ||
      (op->state() != Operation::State::waiting && op->state() != Operation::State::confirming))
    return violation(peer, "a release of a request that does not wait");
  if (op->state() == Operation::State::waiting) {
    counters_.add(Count::send_rndv_read);
    waiting_.remove(*op);
  }
  finish(*op, Error::none);
}

// --- by Write ---

// The receive is the message's.
void Machine::store_head(Operation& op, Octets head) {
  std::copy_n(head.begin(), std::min(head.size(), op.length), op.data);
}

void Machine::answer(Operation& op, const wire::Message& m, Octets head) {
  Link& link = *links_[op.peer];
  if (!expose(op, Transport::Reach::written)) {
    link.release(m.id, true);
    return end(op, Error::no_memory);
  }
  store_head(op, head);
  op.enter(Operation::State::expected);
  queue_receiver_ready(op, m.number, wire::flag::kAnswer, head.empty() ? std::uint8_t{0} : wire::extra::kTaken);
}

}  // namespace ewarp::channel
