// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who may speak when at the beginning of a stream.
#pragma once

#include <cassert>
#include <cstdint>

#include "mpa/startup.h"

namespace ewarp::rdmap {

// The initiator speaks first (RFC 5044 section 7.1.2); between peers its first FPDU is the agreed RTR, of which neither
// consumer hears (RFC 6581 section 9.2).
class Opening {
 public:
  enum class State : std::uint8_t {
    rtr_due,   // initiator: the RTR goes out before anything else; or goes out once more
    silent,    // responder: nothing valid has arrived, so nothing may be sent
    speaking,  // responder: the same, but it has waited long enough and sends
    open,
  };

  explicit Opening(const mpa::StreamParams& params)
      : state_(!params.initiator   ? State::silent
               : sends_rtr(params) ? State::rtr_due
                                   : State::open),
        peer_to_peer_(params.peer_to_peer),
        repeatable_(params.initiator && sends_rtr(params) && (params.rtr & (mpa::kRtrWrite | mpa::kRtrRead)) != 0) {}

  State state() const { return state_; }
  bool rtr_due() const { return state_ == State::rtr_due; }
  // Whether the next valid FPDU is the first one that a responder receives.
  bool awaits_first() const { return state_ == State::silent || state_ == State::speaking; }
  bool may_send() const { return state_ != State::silent; }
  // Both directions may be used. Between peers a responder knows that by the RTR.
  bool established() const { return !(peer_to_peer_ && awaits_first()); }

  void rtr_sent() { enter(State::open); }
  // An empty Write goes out behind an RTR by Write or Read: at any time that changes nothing at the peer, while a
  // second Read would count against its IRD. An RTR by Send is for peers that look at it. False: it is none of the two,
  // or was not sent yet.
  bool repeat_rtr() {
    if (!repeatable_ || state_ != State::open) return false;
    repeats_ = true;
    enter(State::rtr_due);
    return true;
  }
  // Such an RTR is, or was, this end's to send.
  bool repeatable() const { return repeatable_; }
  // What is due is an empty Write, whatever the RTR was.
  bool repeats() const { return repeats_; }
  // A responder has waited long enough.
  void speak_first() {
    if (state_ == State::silent) enter(State::speaking);
  }
  // A valid FPDU arrived.
  void received() {
    if (awaits_first()) enter(State::open);
  }

  static constexpr bool allowed(State from, State to) {
    switch (to) {
      case State::rtr_due:
        return from == State::open;
      case State::silent:
        return false;
      case State::speaking:
        return from == State::silent;
      case State::open:
        return from != State::open;
    }
    return false;
  }

 private:
  // An initiator that could not agree sends a Terminate instead (RFC 6581 section 8).
  static bool sends_rtr(const mpa::StreamParams& params) {
    return params.peer_to_peer && params.rtr != 0 && !params.terminate;
  }
  void enter(State next) {
    assert(allowed(state_, next));
    state_ = next;
  }

  State state_;
  bool peer_to_peer_;
  bool repeatable_;  // the RTR
  bool repeats_ = false;
};

}  // namespace ewarp::rdmap
