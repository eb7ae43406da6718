// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The fault that ends a stream from our side, and the Terminate that tells the peer of it.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <utility>

#include "rdmap/header.h"

namespace ewarp::rdmap {

// Only the first fault counts, and at most one Terminate goes out (RFC 5040 sections 4.8 and 7).
class OwnTerminate {
 public:
  enum class State : std::uint8_t {
    none,    // no fault
    silent,  // a fault of which the peer does not hear: the stream was given up
    wanted,  // the Terminate waits for the end of an FPDU
    sent,    // it was produced: nothing follows it
  };

  // Nothing while the stream is good.
  const std::optional<Fault>& fault() const { return fault_; }
  bool wanted() const { return state_ == State::wanted; }
  bool sent() const { return state_ == State::sent; }

  // After the first fault this does nothing.
  void report(const Fault& fault, Terminate message) {
    if (fault_) return;
    enter(State::wanted);
    fault_ = fault;
    message_ = std::move(message);
  }
  void give_up(const Fault& fault) {
    if (fault_) return;
    enter(State::silent);
    fault_ = fault;
  }
  // What is to be sent. Requires: wanted().
  const Terminate& message() const {
    assert(wanted());
    return message_;
  }
  void produced() { enter(State::sent); }

  static constexpr bool allowed(State from, State to) {
    switch (to) {
      case State::none:
        return false;
      case State::silent:
      case State::wanted:
        return from == State::none;
      case State::sent:
        return from == State::wanted;
    }
    return false;
  }

 private:
  void enter(State next) {
    assert(allowed(state_, next));
    state_ = next;
  }

  State state_ = State::none;
  std::optional<Fault> fault_;
  Terminate message_;
};

}  // namespace ewarp::rdmap
