// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What stands before a request of the peer that was found to be bad.
#pragma once

#include <cassert>
#include <cstdint>

namespace ewarp::llp::rd {

// The REQ segment that is due was bad. It is not acknowledged, and nothing behind it is delivered, before the peer has
// acknowledged the report about it: the peer learns why before it takes the request for done. After that the rest of
// the same message is thrown away.
class Barrier {
 public:
  enum class State : std::uint8_t {
    open,        // nothing is wrong
    raised,      // the report is not numbered yet
    reported,    // it is, in our RSP lane
    discarding,  // it is acknowledged; the failed message goes on
  };

  State state() const { return state_; }
  // Whether what comes next in the REQ lane has to wait.
  bool blocks() const { return state_ == State::raised || state_ == State::reported; }

  // last: the bad segment ends its message. Requires: open.
  void raise(bool last) {
    enter(State::raised);
    last_ = last;
  }
  // The report was numbered.
  void report() { enter(State::reported); }
  // The peer has acknowledged the report: the bad segment counts as received.
  void release() { enter(last_ ? State::open : State::discarding); }
  // Whether this segment, which is due, belongs to the failed message; last: it ends it.
  bool discards(bool last) {
    if (state_ != State::discarding) return false;
    if (last) enter(State::open);
    return true;
  }

  static constexpr bool allowed(State from, State to) {
    switch (to) {
      case State::raised:
        return from == State::open;
      case State::reported:
        return from == State::raised;
      case State::discarding:
        return from == State::reported;
      case State::open:
        return from == State::reported || from == State::discarding;
    }
    return false;
  }

 private:
  void enter(State next) {
    assert(allowed(state_, next));
    state_ = next;
  }

  State state_ : 2 = State::open;
  bool last_ : 1 = false;
};
static_assert(sizeof(Barrier) == 1);

}  // namespace ewarp::llp::rd
