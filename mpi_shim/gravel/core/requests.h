// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Requests of this process, from the call that begins one until it was found done.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "mpi_shim/gravel/core/types.h"

namespace ewarp::gravel {

struct Request {
  enum class Kind : std::uint8_t {
    unused,
    receive,  // consumer: its buffer is known to the producer, who will send a FIN
    notice,   // producer: the consumer will hear of a message to come
    offer,    // producer: its buffer is known to the consumer, who will send a FIN
    put,      // producer: has the consumer's buffer
    fetch,    // consumer: has the producer's buffer
  };
  enum class State : std::uint8_t {
    open,     // receive, offer: the FIN has not come; put, fetch: further transfers may begin
    closing,  // put: the FIN is out; fetch: the FIN follows the last transfer
    done,
  };
  static constexpr bool allowed(State from, State to) {
    return (from == State::open && to != State::open) || (from == State::closing && to == State::done);
  }
  // The only writer of the state.
  void enter(State to) {
    assert(kind != Kind::unused && allowed(state_, to));
    state_ = to;
  }
  State state() const { return state_; }
  // A request of this name begins.
  void begin(Kind k) {
    assert(kind == Kind::unused);
    kind = k;
    state_ = State::open;
  }
  bool awaits_fin() const { return (kind == Kind::receive || kind == Kind::offer) && state_ == State::open; }
  bool transfers() const { return kind == Kind::put || kind == Kind::fetch; }

  Kind kind = Kind::unused;
  Proc proc = 0;
  Local own;                  // receive, offer: the buffer
  Remote remote;              // put, fetch: the buffer at the peer
  std::uint64_t size = 0;     // of that, octets
  RequestId peer_name = 0;    // put, fetch: what the FIN names
  std::uint64_t moved = 0;    // put, fetch: octets
  std::uint32_t unended = 0;  // put, fetch: transfers under way
  bool owes_fin = false;      // put, fetch, closing: the FIN is not out
  Error error = Error::none;

 private:
  State state_ = State::done;
};

// A name is an index and a generation, so a name of before is known as such.
class Requests {
 public:
  static constexpr std::size_t kMost = 65536;  // at a time

  // 0: there are too many.
  RequestId begin(Request::Kind kind) {
    if (free_.empty() && !grow()) return 0;
    const std::uint32_t index = free_.back();
    free_.pop_back();
    Slot& slot = slots_[index];
    slot.request.begin(kind);
    ++in_use_;
    return slot.generation << 16 | index;
  }
  // Null if there is none of this name.
  Request* find(RequestId name) {
    const std::uint32_t index = name & 0xffff;
    if (index >= slots_.size() || slots_[index].generation != name >> 16) return nullptr;
    Request& r = slots_[index].request;
    return r.kind == Request::Kind::unused ? nullptr : &r;
  }
  void end(RequestId name) {
    assert(find(name) != nullptr);
    Slot& slot = slots_[name & 0xffff];
    slot.request = {};
    slot.generation = slot.generation == 0xffff ? 1 : slot.generation + 1;  // so that no name is 0
    free_.push_back(name & 0xffff);
    --in_use_;
  }
  std::size_t in_use() const { return in_use_; }
  template <class F>
  void for_each(F&& f) {
    for (Slot& slot : slots_)
      if (slot.request.kind != Request::Kind::unused) f(slot.request);
  }

 private:
  struct Slot {
    Request request;
    std::uint32_t generation = 1;
  };

  bool grow() {
    if (slots_.size() == kMost) return false;
    if (free_.capacity() <= slots_.size()) free_.reserve(2 * slots_.size() + 1);  // so that end() needs no memory
    slots_.emplace_back();
    free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));  // without memory nobody has the slot
    return true;
  }

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::size_t in_use_ = 0;
};

}  // namespace ewarp::gravel
