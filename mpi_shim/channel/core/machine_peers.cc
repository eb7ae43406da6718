// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What peers send and do: messages, releases, cancelling with them, their end.
#include <algorithm>
#include <new>
#include <utility>

#include "mpi_shim/channel/core/machine.h"

namespace ewarp::channel {

void Machine::on_peer_up(PeerId peer) {
  Link& link = *links_[peer];
  up_.push_back(link);
  link.set_up();
}

void Machine::on_writable(PeerId peer) {
  links_[peer]->flush();
}

void Machine::on_received(PeerId peer, Octets octets) {
  std::size_t used = 0;
  const auto m = wire::Message::parse(octets, &used);
  if (!m) return violation(peer, "no message of the channel");
  Link& link = *links_[peer];
  if (!link.on_received(*m)) return violation(peer, "a message without a credit");
  if (const char* wrong = misplaced(link, *m, octets.subspan(used))) return violation(peer, wrong);
  if (m->has(wire::flag::kFloor)) link.arrived.on_floor(m->floor);
  if (m->has(wire::flag::kClosing)) link.set_peer_closing();
  if (m->attached()) link.data_seen = m->attached();
  on_releases(peer, *m);
  dispatch(peer, *m, octets.subspan(used));
  link.flush();
  if (!link.take_shortage()) return;
  try {
    if (Link* lender = budget_.lender(link)) lender->lend(budget_.idle(*lender));
  } catch (const std::bad_alloc&) {  // it is no fault of this peer's
  }
}

const char* Machine::misplaced(const Link& link, const wire::Message& m, Octets payload) const {
  if (m.kind == wire::Kind::note) return nullptr;
  if ((link.incomplete.missing > 0) != (m.kind == wire::Kind::more)) return "a piece of another message";
  if (!m.has_payload()) return nullptr;
  if (m.kind == wire::Kind::sender_ready) {
    const bool fits = payload.empty() || payload.size() == std::min<std::uint64_t>(m.size, tuning_.piece());
    return fits ? nullptr : "first octets of another length";
  }
  const std::size_t all = m.kind == wire::Kind::more ? link.incomplete.missing : m.size;
  if (all > tuning_.eager_threshold) return "a message that is too long";
  return payload.size() == std::min(all, tuning_.piece()) ? nullptr : "a piece of another length";
}

Incomplete* Machine::note_rest(PeerId peer, const wire::Message& m, Octets payload) {
  if (!m.has_payload() || m.kind == wire::Kind::more || m.kind == wire::Kind::sender_ready || payload.size() == m.size)
    return nullptr;
  Incomplete& rest = links_[peer]->incomplete;
  rest.first = m;
  rest.missing = m.size - payload.size();
  return &rest;
}

void Machine::dispatch(PeerId peer, const wire::Message& m, Octets payload) {
  Incomplete* const rest = note_rest(peer, m, payload);
  switch (m.kind) {
    case wire::Kind::eager:
    case wire::Kind::sender_ready:
      if (!links_[peer]->arrived.arrived(key_of(m.tag), m.number))
        return violation(peer, "a message number of the past");
      arrived({.source = peer, .message = m, .payload = payload, .own = nullptr, .rest = rest});
      if (m.has_extra(wire::extra::kConfirm) && rest == nullptr) links_[peer]->release(m.id, true);
      return;
    case wire::Kind::receiver_ready:
      return on_receiver_ready(peer, m);
    case wire::Kind::written:
      return on_written(peer, m.id, m.size, m.tag, m.attached());
    case wire::Kind::retract:
      return on_retract(peer, key_of(m.tag));
    case wire::Kind::retracted:
      return on_retracted(peer, key_of(m.tag));
    case wire::Kind::told:
      return hear_of_put(peer, m.size, m.data);
    case wire::Kind::call:
    case wire::Kind::answer:
      if (rest != nullptr) return rest->octets.assign(payload.begin(), payload.end());
      return m.kind == wire::Kind::call ? on_call(peer, m, payload) : on_answer(peer, m, payload);
    case wire::Kind::more:
      return on_more(peer, payload);
    case wire::Kind::recall:
      return links_[peer]->on_recall(static_cast<std::uint32_t>(std::min<std::uint64_t>(m.number, ~std::uint32_t{0})));
    case wire::Kind::note:
    case wire::Kind::unused:
      return;
  }
}

void Machine::on_immediate(PeerId peer, std::uint32_t immediate, std::size_t written) {
  Link& link = *links_[peer];
  if (!link.on_immediate()) return violation(peer, "a Write without a credit");
  if (link.incomplete.missing > 0) return violation(peer, "a Write between the pieces of a message");
  const bool same = (immediate & wire::kSameData) != 0;
  if (same && !link.data_seen) return violation(peer, "an immediate that refers to no message");
  on_written(peer, immediate & ~wire::kSameData, written, {}, same ? link.data_seen : std::nullopt);
  link.flush();
}

void Machine::on_releases(PeerId peer, const wire::Message& m) {
  for (std::size_t i = 0; i < m.release_count; ++i) {
    const std::uint32_t id = m.releases[i];
    if ((id & wire::kRequestId) != 0)
      on_sender_released(peer, id);
    else if (!hybrid_buffers_.give(id, peer))
      violation(peer, "a release of a buffer that it does not have");
  }
}

void Machine::on_complete(Cookie cookie, bool ok) {
  Outgoing& o = *reinterpret_cast<Outgoing*>(cookie);
  Link& link = *links_[o.peer];
  Operation* op = o.operation;
  const bool ping = o.what == Outgoing::What::ping;
  const auto buffer = o.buffer;
  link.completed(o);
  if (!ok) return;  // on_peer_down() is on its way, ends the requests and takes the buffers back
  link.heard_at = transport_.polled_at();
  if (ping) link.pinged_at = 0;
  if (buffer) hybrid_buffers_.give(*buffer, link.peer());
  if (op != nullptr && op->state() == Operation::State::fetching)
    fetched(*op);
  else if (op != nullptr)
    finish(*op, Error::none);
  link.use_room();
}

// --- cancelling ---

Request Machine::find_posted(const Listener& listener, const void* context) const {
  const Operation* oldest = nullptr;
  operations_.for_each([&](const Operation& op) {
    const bool meant = op.state() == Operation::State::posted && !op.cancelling && op.report.listener == &listener &&
                       op.report.context == context;
    if (meant && (oldest == nullptr || op.order < oldest->order)) oldest = &op;
  });
  return oldest == nullptr ? Request{} : Operations::name(*oldest);
}

// A receive whose place in the line later announcements are counted from cannot just leave: the peer may be using them.
// It is asked to forget them, and answers; until then a message may still come, and wins.
void Machine::cancel(Request request) {
  Operation* op = operations_.find(request);
  if (op == nullptr || op->kind != Operation::Kind::receive || op->state() != Operation::State::posted) return;
  bool announced = false;
  if (op->exact())
    for (const Posted* p = op; p != nullptr && !announced; p = PostedReceives::next_exact(*p))
      announced = static_cast<const Operation*>(p)->announced;
  if (!announced) {
    counters_.add(Count::cancelled);
    return end_posted(*op, Error::cancelled);
  }
  std::vector<Tag>& retracting = links_[op->source]->retracting;
  const bool asked = std::find(retracting.begin(), retracting.end(), op->key) != retracting.end();
  if (!asked) {
    pool_.reserve(1);  // without memory nothing has changed
    retracting.push_back(op->key);
  }
  op->cancelling = true;
  if (asked) return;
  counters_.add(Count::retractions);
  queue_control(op->source, wire::Kind::retract, op->key, 0);
}

void Machine::on_retract(PeerId peer, Tag key) {
  if (!may_answer(peer)) return violation(peer, "it retracts, and takes no answers");
  links_[peer]->sent.retract(key);
  queue_control(peer, wire::Kind::retracted, key, 0);
}

// What the peer sent before it forgot has come before this.
void Machine::on_retracted(PeerId peer, Tag key) {
  Link& link = *links_[peer];
  if (std::erase(link.retracting, key) == 0) return violation(peer, "an answer to no retraction");
  Posted* next = nullptr;
  for (Posted* p = posted_.first_exact(peer, key); p != nullptr; p = next) {
    next = PostedReceives::next_exact(*p);
    Operation& op = static_cast<Operation&>(*p);
    if (std::exchange(op.announced, false)) --link.announced;
    if (!op.cancelling) continue;
    counters_.add(Count::cancelled);
    posted_.remove(op);
    finish(op, Error::cancelled);
  }
}

// --- the end ---

// What a dead peer only announced cannot be had any more; what it sent can.
void Machine::forget_messages_of(PeerId peer) {
  Arrival* next = nullptr;
  for (Arrival* a = unexpected_.first(); a != nullptr; a = next) {
    next = Unexpected::next(*a);
    const auto& stored = *static_cast<Stored*>(a);
    if (a->source != peer || (stored.message.kind == wire::Kind::eager && stored.missing == 0)) continue;
    take_stored(*a);
  }
}

void Machine::on_peer_down(PeerId peer) {
  Link& link = *links_[peer];
  assert(!self_[peer]);
  if (link.state() == Link::State::down) return;
  counters_.add(Count::peers_lost);
  if (Stored* stored = link.incomplete.stored) stored->incomplete = nullptr;
  if (link.state() == Link::State::up) up_.remove(link);
  link.set_down();
  hybrid_buffers_.give_all_of(peer);
  forget_messages_of(peer);
  tell_ends(link, true);
  operations_.for_each([&](Operation& op) {
    if (op.done() || op.peer != peer || op.state() == Operation::State::spent) return;
    if (op.state() == Operation::State::posted) return end_posted(op, Error::peer_down);
    if (op.state() == Operation::State::waiting) waiting_.remove(op);
    finish(op, Error::peer_down);
  });
}

// A connection on which something is under way fails by itself when the peer is gone; a silent one has to be tried.
// What waits for credits is not under way; a ping needs none.
void Machine::tick() {
  const std::uint64_t now = transport_.now(), patience = tuning_.death_ns / 2;
  Link* next = nullptr;
  for (Link* link = up_.front(); link != nullptr; link = next) {
    next = Up::after(*link);
    if (link->starved()) link->flush();
    if (link->pending == 0 && link->nothing_waits()) continue;
    if (link->pinged_at != 0) {
      if (now - link->pinged_at > patience) transport_.fail(link->peer(), "no answer");
    } else if (!link->under_way() && now - link->heard_at > patience) {
      Outgoing& ping = pool_.take(Outgoing::What::ping, link->peer());
      link->pinged_at = now;
      link->push(ping);
    }
  }
}

void Machine::begin_close() {
  if (hybrid_buffers_.in_use() == 0) return;
  for (PeerId peer = 0; peer < links_.size(); ++peer) {
    if (links_[peer]->state() != Link::State::up) continue;
    Outgoing& o = pool_.take(Outgoing::What::send, peer);
    o.message.kind = wire::Kind::note;
    o.message.flags = wire::flag::kClosing;
    links_[peer]->push(o);
  }
}

void Machine::abandon() {
  operations_.for_each([&](Operation& op) {
    if (op.done() || op.state() == Operation::State::spent) return;
    if (op.state() == Operation::State::posted) return end_posted(op, Error::peer_down);
    finish(op, Error::peer_down);
  });
}

bool Machine::idle() const {
  return hybrid_buffers_.in_use() == 0 && std::all_of(links_.begin(), links_.end(), [](const auto& link) {
           return link->state() == Link::State::down || link->idle();
         });
}

}  // namespace ewarp::channel
