// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The states of an id, and which may follow each other.
#include <cassert>

#include "provider/base/log.h"
#include "provider/cm/id.h"

namespace ewarp::cm {

const char* name(State state) {
  switch (state) {
    case State::idle:
      return "idle";
    case State::bound:
      return "bound";
    case State::address_resolved:
      return "address resolved";
    case State::route_resolved:
      return "route resolved";
    case State::connecting:
      return "connecting";
    case State::listening:
      return "listening";
    case State::request:
      return "request";
    case State::accepting:
      return "accepting";
    case State::established:
      return "established";
    case State::closing:
      return "closing";
    case State::disconnected:
      return "disconnected";
    case State::failed:
      return "failed";
    case State::destroyed:
      return "destroyed";
  }
  return "?";
}

// The order of rdma_cm(7), for connections and for SIDR, where a request is answered at once.
namespace {

[[maybe_unused]] constexpr bool allowed(State from, State to) {
  switch (to) {
    case State::idle:
      return false;
    case State::bound:
    case State::request:
      return from == State::idle;
    case State::address_resolved:
      return from == State::idle || from == State::bound;
    case State::route_resolved:
      return from == State::address_resolved;
    case State::connecting:
      return from == State::route_resolved;
    case State::listening:
      return from == State::bound;
    case State::accepting:
      return from == State::request;
    case State::established:
      return from == State::connecting || from == State::accepting || from == State::request;
    case State::closing:
      return from == State::established || from == State::accepting;
    case State::disconnected:
      return from == State::established || from == State::closing;
    case State::failed:
      return from == State::request || from == State::connecting || from == State::accepting;
    case State::destroyed:
      return from != State::destroyed;
  }
  return false;
}

}  // namespace

void Id::enter(State next) {
  assert(allowed(state, next));
  if (log::enabled(log::Level::debug))
    log::debug("cm: id {} {} -> {}: {} -> {}", number, local.text(), remote.text(), name(state), name(next));
  state = next;
}

}  // namespace ewarp::cm
