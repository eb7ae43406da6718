// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A request of the application, from its start until it was found complete.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "mpi_shim/channel/core/matching.h"
#include "mpi_shim/channel/core/room.h"
#include "mpi_shim/channel/core/transport.h"
#include "mpi_shim/channel/core/types.h"

namespace ewarp::channel {

struct Operation : Posted {
  enum class Kind : std::uint8_t { unused, send, receive, one_sided };
  enum class State : std::uint8_t {
    underway,    // send, put, get: the transport has all that it needs, or will get it
    waiting,     // send: SENDER_READY is out, and the receiver has neither answered nor read
    confirming,  // send: EAGER is out, and the receiver has not said that it has come
    posted,      // receive: nothing has come for it, or there is room for more
    spent,       // multi-receive: takes no more, and some of its messages are still coming
    expected,    // receive: its message is known, a Write will bring it
    fetching,    // receive: its message is known, a Read brings it
    held,        // receive: it is over, and will be told behind HYBRID receives of the same peer
    done,
  };
  // A request begins when it is done, and ends from anywhere else. What needs an answer of the peer's waits or confirms
  // first; a message is expected or fetched, at once or for a receive that was posted.
  static constexpr bool allowed(State from, State to) {
    switch (to) {
      case State::underway:
        return from == State::done || from == State::underway || from == State::waiting;
      case State::waiting:
      case State::confirming:
        return from == State::underway;
      case State::posted:
        return from == State::underway;
      case State::spent:
        return from == State::underway || from == State::posted;
      case State::expected:
        return from == State::underway || from == State::posted;
      case State::fetching:
        return from == State::underway || from == State::posted;
      case State::held:
        return from == State::underway || from == State::posted || from == State::expected || from == State::fetching;
      case State::done:
        return from != State::done;
    }
    return false;
  }
  // The only writer of the state.
  void enter(State to) {
    assert(kind != Kind::unused);
    assert(allowed(state_, to));
    state_ = to;
  }
  State state() const { return state_; }

  std::uint32_t index = 0, generation = 0;
  Kind kind = Kind::unused;
  PeerId peer = kAnySource;  // whose end is this one's; a receive with ANY_SOURCE has none before its message came
  Status status;
  Report report;

  // The user's buffer: what is sent, or where it goes.
  std::byte* data = nullptr;
  std::size_t length = 0;
  Exposed* memory = nullptr;  // while the transport needs it

  std::uint64_t number = 0;               // send: among those of its (peer, tag)
  Links<Operation> waiting;               // send: in the queue of those in state waiting
  std::size_t head = 0;                   // send, waiting: so many octets went with SENDER_READY
  std::optional<std::uint64_t> attached;  // send: for the receiver's status
  bool confirm = false;                   // send, put: done only when the peer has it
  Operation* parent = nullptr;            // a message of a multi-receive: that
  std::uint32_t children = 0;             // multi-receive: messages that are coming
  std::size_t taken = 0, least = 0;       // multi-receive: octets in use; of which so many must be free
  Error fate = Error::none;               // multi-receive, spent; receive, held: how it ends
  Links<Operation> ending;                // receive: in its peer's line of ends
  bool large = false;                     // more than the adapter alone may be needed for it
  bool announced = false;                 // receive: its buffer was announced, for `announced_for`
  bool candidate = false;                 // ... would have been, were announcements not stopped
  bool cancelling = false;                // ... ends with the answer to a retraction, unless a message is first
  std::uint64_t announced_for = 0;
  std::uint64_t posted_at = 0;   // now(), of large ones
  std::uint32_t release_id = 0;  // receive, fetching: what the sender has to hear when it is done

  bool done() const { return state_ == State::done; }
  // The sender waits for its end.
  bool releasing() const { return state_ == State::fetching && (release_id & wire::kRequestId) != 0; }
  // It is fetched from a buffer of HYBRID.
  bool fetching_copy() const { return state_ == State::fetching && !releasing(); }
  MutableOctets buffer() const { return {data, length}; }

 private:
  State state_ = State::done;
};

// Operations by index. An id for the wire holds index and generation in 31 bits: enough to tell a late one.
class Operations {
 public:
  static constexpr std::uint32_t kIndexBits = 20, kGenerationBits = 11;

  // Null if there are too many.
  Operation* start(Operation::Kind kind, PeerId peer) {
    if (free_.empty() && !grow()) return nullptr;
    assert(kind != Operation::Kind::unused);
    Operation& op = *all_[free_.back()];
    assert(op.kind == Operation::Kind::unused);
    free_.pop_back();
    const std::uint32_t index = op.index, generation = op.generation + 1;
    op = Operation{};
    op.index = index;
    op.generation = generation == 0 ? 1 : generation;
    op.kind = kind;
    op.peer = peer;
    return &op;
  }
  // Requires: it is done, and in no queue.
  void free(Operation& op) {
    assert(op.kind != Operation::Kind::unused && op.done());
    assert(op.memory == nullptr && op.children == 0);
    op.kind = Operation::Kind::unused;
    free_.push_back(op.index);
  }

  // Null if that request is not there any more.
  Operation* find(Request r) const {
    Operation* op = r.index < all_.size() ? all_[r.index].get() : nullptr;
    return op != nullptr && op->kind != Operation::Kind::unused && op->generation == r.generation ? op : nullptr;
  }
  static Request name(const Operation& op) { return {.index = op.index, .generation = op.generation}; }

  Operation* find_wire(std::uint32_t id) const {
    const std::uint32_t index = id & ((1u << kIndexBits) - 1);
    Operation* op = index < all_.size() ? all_[index].get() : nullptr;
    return op != nullptr && op->kind != Operation::Kind::unused && wire_id(*op) == id ? op : nullptr;
  }
  static std::uint32_t wire_id(const Operation& op) {
    return (op.generation & ((1u << kGenerationBits) - 1)) << kIndexBits | op.index;
  }

  template <class F>
  void for_each(F&& f) const {
    for (const auto& op : all_)
      if (op->kind != Operation::Kind::unused) f(*op);
  }

 private:
  bool grow() {
    if (all_.size() >= 1u << kIndexBits) return false;
    make_room(all_, free_);
    all_.push_back(std::make_unique<Operation>());
    all_.back()->index = static_cast<std::uint32_t>(all_.size() - 1);
    free_.push_back(all_.back()->index);
    return true;
  }

  std::vector<std::unique_ptr<Operation>> all_;
  std::vector<std::uint32_t> free_;
};

}  // namespace ewarp::channel
