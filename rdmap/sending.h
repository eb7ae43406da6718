// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The message that is being cut into segments.
#pragma once

#include <cassert>
#include <cstdint>

#include "rdmap/request.h"

namespace ewarp::rdmap {

// One at a time: a message is sent to its end before the next begins (RFC 5040 section 5.5), and Immediate Data follows
// its Write at once.
class Sending {
 public:
  enum class State : std::uint8_t {
    nothing,    // between two messages
    request,    // a Send or Write of ours; offset() octets of its payload are produced
    immediate,  // that Write is produced, its Immediate Data is not
    response,   // the answer to the peer's oldest request
  };

  State state() const { return state_; }
  bool idle() const { return state_ == State::nothing; }
  bool has_request() const { return state_ == State::request || state_ == State::immediate; }
  // Requires: has_request().
  SendRequest& request() const {
    assert(has_request() && request_ != nullptr);
    return *request_;
  }
  std::uint64_t offset() const { return offset_; }
  // So many octets at its begin go in short segments (lead.h).
  std::uint64_t lead() const { return lead_; }

  void begin(SendRequest& request, std::uint64_t lead = 0) {
    assert(lead < request.length || lead == 0);
    enter(State::request);
    request_ = &request;
    offset_ = 0;
    lead_ = lead;
  }
  void begin_response() { enter(State::response); }
  // So many more octets of the request's payload are produced.
  void advance(std::size_t octets) {
    assert(state_ == State::request && octets <= request_->length - offset_);
    offset_ += octets;
  }
  // The payload is produced. Requires: all of it is.
  void payload_done() {
    assert(offset_ == request().length);
    enter(request_->operation == Operation::write && request_->immediate ? State::immediate : State::nothing);
  }
  // It is produced, or will never be.
  void end() { enter(State::nothing); }

  static constexpr bool allowed(State from, State to) {
    switch (to) {
      case State::nothing:
        return true;
      case State::request:
      case State::response:
        return from == State::nothing;
      case State::immediate:
        return from == State::request;
    }
    return false;
  }

 private:
  void enter(State next) {
    assert(allowed(state_, next));
    state_ = next;
  }

  State state_ = State::nothing;
  SendRequest* request_ = nullptr;
  std::uint64_t offset_ = 0, lead_ = 0;
};

}  // namespace ewarp::rdmap
