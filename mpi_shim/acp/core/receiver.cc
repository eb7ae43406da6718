// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/core/receiver.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>

namespace ewarp::acp {

std::size_t Receiver::block_octets(const Shape& shape) {
  return sizeof(Receiver) + sizeof(ReceiverWords) + std::size_t{shape.slots} * shape.slot_size;
}

Receiver& Receiver::create(void* block, const Place& place, const Shape& shape) {
  Receiver& r = *new (block) Receiver(place, shape);
  r.words().tail = kFirstCount;
  return r;
}

void Receiver::enter(State to) {
  assert(allowed(state_, to));
  state_ = to;
}

void Receiver::asked(const ConnectRequest& request) {
  if (state_ != State::waiting) return;
  connect({request.address, request.rkey}, request.end);
  enter(State::answering);
  const bool fits = request.slot_size == shape_.slot_size && request.mode == static_cast<std::uint32_t>(shape_.mode);
  if (!fits) error_ = EINVAL;
}

Answer Receiver::answer() const {
  return {.address = reinterpret_cast<std::uintptr_t>(this + 1),
          .rkey = 0,
          .slots = shape_.slots,
          .end = number(),
          .error = error_};
}

bool Receiver::advance(Wire& wire) {
  if (state_ == State::answering) {
    if (!wire.answer(*this)) return true;
    enter(State::open);
    if (error_ != 0) lose(error_);
  }
  if (state_ == State::open && take_all(wire)) return true;
  if (state_ == State::closing) {
    // An atomic is executed when it is answered, and what was posted behind it may come first (RFC 7306 section 5): the
    // sender would take its memory away from under the last credits. Their completions bring us here again.
    if (shape_.mode == Mode::paper && under_way() != 0) return false;
    if (!wire.tell_closed(*this)) return true;
    enter(State::closed);
  }
  if (state_ == State::lost) take_all(wire);
  return false;
}

// In batches of half a buffer the sender never waits for a slot that is empty: it has the other half.
bool Receiver::take_all(Wire& wire) {
  const std::uint32_t batch = shape_.mode == Mode::paper ? 1 : std::max(1u, shape_.slots / 2);
  while (queue_.front() != nullptr && taken_ != arrived_) {
    if (!take_slot(*queue_.front())) break;
    if (state_ == State::open && !give_back(wire, batch)) return true;
  }
  if (state_ == State::lost) end_all(error_);
  return state_ == State::open && !give_back(wire, batch);
}

// False: the slot stays.
bool Receiver::take_slot(Request& r) {
  const std::byte* at = slot(next_.at());
  SlotHeader header;
  std::memcpy(&header, at, sizeof header);
  if (header.octets > shape_.payload()) {
    lose(EPROTO);
    return false;
  }
  if ((header.flags & SlotHeader::kEnd) != 0) {
    end_of_channel(r);
    return state_ == State::open;
  }
  if (r.kind == Kind::receive) receive_slot(r, header, at + sizeof header);
  empty_slot();  // one that comes before a free is thrown away
  return true;
}

void Receiver::empty_slot() {
  ++taken_;
  next_.advance(shape_.slots);
}

// The smaller of both sizes is received.
void Receiver::receive_slot(Request& r, SlotHeader header, const std::byte* payload) {
  const std::uint32_t n = std::min(header.octets, r.size - r.moved);
  if (n != 0) std::memcpy(r.buffer + r.moved, payload, n);
  r.moved += n;
  if ((header.flags & SlotHeader::kMore) == 0) queue_.end_front();
}

// The sender has freed its end: no receive will find a message. The slot stays until this end is freed, too.
void Receiver::end_of_channel(Request& r) {
  if (r.kind != Kind::free) return queue_.end_front(EPIPE);
  empty_slot();
  queue_.end_front();
  if (state_ == State::open) enter(State::closing);
}

bool Receiver::give_back(Wire& wire, std::uint32_t least) {
  const std::uint32_t n = taken_ - credited_;
  if (n < least) return true;
  if (!wire.credit(*this, n, taken_)) return false;
  credited_ = taken_;
  return true;
}

bool Receiver::arrived(std::uint32_t n) {
  if (n > shape_.slots - (arrived_ - credited_)) return false;
  arrived_ += n;
  return true;
}

void Receiver::look_at_tail() {
  const std::uint64_t tail = std::atomic_ref<std::uint64_t>(words().tail).load(std::memory_order_acquire);
  const std::uint32_t n = static_cast<std::uint32_t>(tail) - arrived_;
  if (n != 0 && !arrived(n)) lose(EPROTO);
}

void Receiver::lose(int error) {
  if (state_ == State::closed || state_ == State::lost) return;
  error_ = static_cast<std::int16_t>(error);
  enter(State::lost);
}

}  // namespace ewarp::acp
