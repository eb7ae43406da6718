// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How connections end. None of this needs memory.
#include <algorithm>
#include <utility>

#include "llp/clock.h"
#include "mpi_shim/channel/verbs/connections.h"
#include "mpi_shim/channel/verbs/reasons.h"

namespace ewarp::channel {
namespace {

constexpr std::uint64_t kDrainNs = 2'000'000'000;

}  // namespace

void Connections::drop(Connection& c, const char* why) {
  if (c.state() == Connection::State::draining) return;
  c.enter(Connection::State::draining);
  draining_.push_back(c);
  c.give_up_at = monotonic_ns() + kDrainNs;
  timers_changed_ = true;
  at(c.peer()).reason = reason::of(why);
  c.flush();
}

void Connections::fail(PeerId peer, const char* why) {
  if (Connection* c = of(peer)) return drop(*c, why);
  Peer& p = at(peer);
  if (!p.wanted) return;
  p.reason = reason::of(why);
  p.give_up_at = 1;  // with the next handle(), not from inside a call
  timers_changed_ = true;
}

void Connections::finish_drained() {
  Connection* next = nullptr;
  for (Connection* c = draining_.front(); c != nullptr; c = next) {
    next = draining_.after(*c);
    if (c->drained()) finish_drained(c->peer());
  }
}

void Connections::finish_drained(PeerId peer) {
  const Connection* c = of(peer);
  if (c == nullptr || c->state() != Connection::State::draining) return;
  if (!c->drained() && monotonic_ns() < c->give_up_at) return;
  std::string why = std::move(at(peer).reason);
  at(peer).wanted ? fail_to_reach(peer, std::move(why)) : give_up(peer, std::move(why));
}

void Connections::destroy(Connection& c) {
  const std::unique_ptr<Connection> gone = std::move(at(c.peer()).connection);
  assert(gone.get() == &c);
  by_serial_.erase(c.serial());
  if (c.state() == Connection::State::draining) draining_.remove(c);
  c.close();
  owner_.on_gone(c);
}

// Final: who asked for the connection is told why there is none.
void Connections::fail_to_reach(PeerId peer, std::string why) {
  if (at(peer).wanted) owner_.on_unreachable(peer, why);
  give_up(peer, std::move(why));
}

void Connections::give_up(PeerId peer, std::string why) {
  assert(!at(peer).dead);
  if (Connection* c = of(peer)) destroy(*c);
  Peer& p = at(peer);
  assert(living_[p.place] == peer);
  at(living_.back()).place = p.place;
  living_[p.place] = living_.back();
  living_.pop_back();
  p.dead = true;
  p.wanted = false;
  p.retry_at = 0;
  p.reason = std::move(why);
  owner_.on_down(peer);
}

void Connections::disconnect() {
  for (const Peer& p : peers_)
    if (p.connection && p.connection->state() == Connection::State::up) rdma_disconnect(p.connection->id());
}

bool Connections::any() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.connection != nullptr; });
}

void Connections::end_all(const char* why) {
  for (PeerId peer = 0; peer < peers_.size(); ++peer)
    if (peers_[peer].connection) give_up(peer, reason::of(why));
}

}  // namespace ewarp::channel
