// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Matching: which receive a message belongs to, and how it gets there.
#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include "mpi_shim/channel/core/machine.h"

namespace ewarp::channel {
namespace {

Operation& operation(Posted& p) {
  return static_cast<Operation&>(p);
}

}  // namespace

Request Machine::receive(PeerId source, Tag tag, Tag ignore, MutableOctets buffer, const ReceiveOptions& options,
                         bool waits) {
  Operation* op = start(Operation::Kind::receive, source, buffer);
  if (op == nullptr) return {};
  const Request name = Operations::name(*op);
  op->report = options.report;
  op->source = source;
  op->tag = tag;
  op->ignore = ignore;
  if (op->large) op->posted_at = transport_.now();
  op->status.tag = tag;
  op->multi = options.multi;
  op->least = std::max<std::size_t>(options.least, 1);
  if (options.multi) {
    post_multi(*op);
  } else if (Arrival* a = unexpected_.find(source, tag, ignore)) {
    deliver_stored(*op, *take_stored(*a));
  } else if (source != kAnySource && links_[source]->state() == Link::State::down) {
    finish(*op, Error::peer_down);
  } else {
    op->enter(Operation::State::posted);
    posted_.post(*op);
    announce(*op, waits);
    wait_for(source);
    // Whoever waits for a peer hears of its end only over a connection.
    if (source != kAnySource && !self_[source]) links_[source]->connect();
  }
  return name;
}

Request Machine::receive_matched(std::unique_ptr<Stored>& message, MutableOctets buffer, const Report& report) {
  Operation* op = start(Operation::Kind::receive, message->source, buffer);
  if (op == nullptr) return {};
  const std::unique_ptr<Stored> taken = std::move(message);
  const Request name = Operations::name(*op);
  op->report = report;
  deliver_stored(*op, *taken);
  return name;
}

namespace {

struct Nobody final : Listener {
  void on_done(const Completion&) override {}
};

}  // namespace

void Machine::discard(std::unique_ptr<Stored> message) {
  static Nobody nobody;
  const PeerId source = message->source;
  const bool awaited = message->message.kind != wire::Kind::eager;
  try {
    if (receive_matched(message, {}, {.listener = &nobody})) return;
  } catch (const std::bad_alloc&) {
  }
  // No request can be had for it, and nobody is told: its sender must not wait for ever.
  if (message->own != nullptr) return finish(*message->own, Error::none);
  if (awaited && links_[source]->state() == Link::State::up) transport_.fail(source, "no memory for a message");
}

namespace {

Status status_of(const Stored& message) {
  return {.source = message.source,
          .tag = message.tag,
          .length = message.size,
          .error = Error::none,
          .data = message.message.attached()};
}

}  // namespace

std::optional<Status> Machine::probe(PeerId source, Tag tag, Tag ignore) {
  const Arrival* a = unexpected_.find(source, tag, ignore);
  if (a == nullptr) {
    wait_for(source);
    return std::nullopt;
  }
  return status_of(*static_cast<const Stored*>(a));
}

std::unique_ptr<Stored> Machine::matched_probe(PeerId source, Tag tag, Tag ignore, Status* status) {
  Arrival* a = unexpected_.find(source, tag, ignore);
  if (a == nullptr) {
    wait_for(source);
    return nullptr;
  }
  *status = status_of(*static_cast<const Stored*>(a));
  return take_stored(*a);
}

// --- multi-receives ---

// A request for the next message in the buffer; null if there are too many, or no memory.
Operation* Machine::carve(Operation& op, PeerId source, std::size_t size) {
  assert(op.multi && op.taken <= op.length);
  const std::size_t free = op.length - op.taken;
  Operation* child = nullptr;
  try {
    child = start(Operation::Kind::receive, source, {op.data + op.taken, std::min(size, free)});
  } catch (const std::bad_alloc&) {
  }
  if (child == nullptr) return nullptr;
  child->report = op.report;
  child->parent = &op;
  ++op.children;
  op.taken += child->length;
  if (op.length - op.taken >= op.least) return child;
  if (op.state() == Operation::State::posted) posted_.remove(op);
  op.enter(Operation::State::spent);
  return child;
}

// Takes what has come already, as long as there is room.
void Machine::post_multi(Operation& op) {
  const PeerId source = op.source;
  while (op.state() != Operation::State::spent) {
    Arrival* a = unexpected_.find(source, op.tag, op.ignore);
    Operation* child = a != nullptr ? carve(op, a->source, a->size) : nullptr;
    if (child == nullptr) break;
    const bool last = op.state() == Operation::State::spent;
    deliver_stored(*child, *take_stored(*a));
    if (last) return;  // it may be gone
  }
  if (source != kAnySource && links_[source]->state() == Link::State::down && op.children == 0)
    return finish(op, Error::peer_down);
  op.enter(Operation::State::posted);
  posted_.post(op);
  wait_for(source);
  if (source != kAnySource && !self_[source]) links_[source]->connect();
}

// --- what comes ---

void Machine::arrived(const Incoming& in) {
  if (Posted* p = posted_.find(in.source, in.message.tag))
    take_posted(operation(*p), in);
  else
    store(in);
}

void Machine::take_posted(Operation& op, const Incoming& in) {
  const wire::Message& m = in.message;
  if (op.multi) {
    Operation* child = carve(op, in.source, m.size);
    if (child == nullptr) return store(in);
    counters_.add(Count::received_expected);
    return deliver(*child, in);
  }
  posted_.remove(op);
  counters_.add(Count::received_expected);
  // The sender found no announcement when it sent this, but finds it now, and writes.
  const bool coming = op.announced && m.kind == wire::Kind::sender_ready && op.announced_for == m.number &&
                      !m.has(wire::flag::kDeclined) && !m.has(wire::flag::kHybrid);
  announcement_settled(op, op.announced ? coming : candidate_would_have_been_used(op, m));
  if (!coming) return deliver(op, in);
  store_head(op, in.payload);
  op.enter(Operation::State::expected);
  op.status.tag = m.tag;
  op.status.length = m.size;
  op.status.data = m.attached();
}

void Machine::deliver(Operation& op, const Incoming& in) {
  if (op.peer == kAnySource) {
    op.peer = in.source;
    ++links_[op.peer]->pending;
  }
  op.status = Status{.source = in.source,
                     .tag = in.message.tag,
                     .length = in.message.size,
                     .error = Error::none,
                     .data = in.message.attached()};
  // The rest of it, or the Write that brings it, needs credits.
  if (in.message.kind != wire::Kind::eager || in.rest != nullptr) wait_for(op.peer);
  if (in.message.kind == wire::Kind::eager) {
    const bool lost = in.rest == nullptr && in.payload.size() < in.message.size;  // the peer has ended between
    if (lost) return end(op, Error::peer_down);
    deliver_octets(op, in.payload, in.rest);
    if (in.own != nullptr) finish(*in.own, Error::none);
  } else if (links_[op.peer]->state() == Link::State::down) {
    end(op, Error::peer_down);
  } else if (in.message.has(wire::flag::kHybrid) || in.message.has(wire::flag::kByRead)) {
    fetch(op, in.message);
  } else {
    answer(op, in.message, in.payload);
  }
}

// The message is out of the queue: without memory for what follows its sender would wait for ever.
void Machine::deliver_stored(Operation& op, const Stored& message) {
  const PeerId source = message.source;
  try {
    deliver_taken(op, message);
  } catch (const std::bad_alloc&) {
    transport_.fail(source, "no memory for a message");
  }
}

void Machine::deliver_taken(Operation& op, const Stored& message) {
  counters_.add(Count::received_unexpected);
  const Octets payload = message.own != nullptr ? Octets(message.own->buffer())
                                                : Octets(message.payload.get(), message.size - message.missing);
  const bool eager = message.message.kind == wire::Kind::eager;
  deliver(op, {.source = message.source,
               .message = message.message,
               .payload = eager ? payload : Octets{},
               .own = message.own,
               .rest = message.incomplete});
}

void Machine::store(const Incoming& in) {
  auto stored = std::make_unique<Stored>();
  stored->source = in.source;
  stored->tag = in.message.tag;
  stored->size = in.message.size;
  stored->message = in.message;
  stored->own = in.own;
  if (in.message.kind != wire::Kind::eager) {
    if (!in.payload.empty()) counters_.add(Count::heads_dropped);
  } else if (in.own == nullptr && !in.payload.empty()) {
    stored->payload = std::make_unique_for_overwrite<std::byte[]>(in.message.size);
    std::copy(in.payload.begin(), in.payload.end(), stored->payload.get());
  }
  if (in.rest != nullptr) {
    stored->missing = in.rest->missing;
    stored->incomplete = in.rest;
    in.rest->stored = stored.get();
  }
  stored_ += stored->cost();
  unexpected_.add(*stored.release());
  if (in.own != nullptr || tuning_.unexpected_limit == 0 || stored_ <= tuning_.unexpected_limit) return;
  if (waits_for(in.source)) return;
  if (links_[in.source]->hold_credits()) counters_.add(Count::credits_held_back);
  holding_credits_ = true;
}

std::unique_ptr<Stored> Machine::take_stored(Arrival& a) {
  unexpected_.remove(a);
  std::unique_ptr<Stored> stored(static_cast<Stored*>(&a));
  assert(stored_ >= stored->cost());
  stored_ -= stored->cost();
  look_at_credits();
  return stored;
}

// What a request waits for may be behind messages that nobody has asked for, or be asked of the peer: MPI lets a
// program send any number of them before. So only a peer that nothing waits for is held.
bool Machine::waits_for(PeerId peer) const {
  return links_[peer]->pending > 0 || posted_.from_anybody() > 0;
}

// A request or a probe names the peer, or anybody.
void Machine::wait_for(PeerId peer) {
  if (!holding_credits_) return;
  if (peer != kAnySource) return links_[peer]->give_credits();
  for (Link* link = up_.front(); link != nullptr; link = Up::after(*link)) link->give_credits();
}

// Not at the limit itself: credits for one message each would go out with a note each.
void Machine::look_at_credits() {
  if (!holding_credits_ || stored_ > tuning_.unexpected_limit / 2) return;
  holding_credits_ = false;
  for (Link* link = up_.front(); link != nullptr; link = Up::after(*link)) link->give_credits();
}

}  // namespace ewarp::channel
