// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/core/sender.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>

namespace ewarp::acp {

std::size_t Sender::block_octets(const Shape& shape) {
  return sizeof(Sender) + sizeof(SenderWords) + std::size_t{shape.slots} * shape.slot_size;
}

Sender& Sender::create(void* block, const Place& place, const Shape& shape) {
  Sender& s = *new (block) Sender(place, shape);
  s.words().head = kFirstCount;
  return s;
}

void Sender::enter(State to) {
  assert(allowed(state_, to));
  state_ = to;
}

bool Sender::advance(Wire& wire, std::uint64_t now) {
  if (state_ == State::waiting) {
    if (now < again_ || !wire.claim(*this, entry_)) return true;
    enter(State::claiming);
  }
  if (state_ == State::claimed) {
    if (!wire.ask(*this, entry_)) return true;
    enter(State::asking);
  }
  if (state_ == State::lost) end_all(error_);
  return state_ == State::open && send_all(wire);
}

void Sender::claim_done(std::uint64_t now) {
  if (state_ != State::claiming) return;  // lost meanwhile
  if (words().found == 0) return enter(State::claimed);
  enter(State::waiting);
  next_entry(now);
}

void Sender::next_entry(std::uint64_t now) {
  entry_ = static_cast<std::uint16_t>((entry_ + 1) % kEntries);
  if (++tries_ < kEntries) return;
  tries_ = 0;
  again_ = now + kFullPause;
}

void Sender::answered() {
  if (state_ != State::asking) return;
  const Answer& a = words().answer;
  if (a.error != 0 || a.slots == 0) return lose(a.error != 0 ? a.error : EPROTO);
  connect({a.address, a.rkey}, a.end);
  receive_slots_ = a.slots;
  enter(State::open);
}

bool Sender::credited(std::uint32_t n) {
  if (n > filled_ - emptied_) return false;
  emptied_ += n;
  return true;
}

void Sender::look_at_head() {
  const std::uint64_t head = std::atomic_ref<std::uint64_t>(words().head).load(std::memory_order_acquire);
  const std::uint32_t n = static_cast<std::uint32_t>(head) - emptied_;
  if (n != 0 && !credited(n)) lose(EPROTO);
}

// Until one of the buffers is full.
bool Sender::send_all(Wire& wire) {
  while (Request* r = queue_.front()) {
    if (filled_ - emptied_ >= receive_slots_ || staged_ - returned_ >= shape_.slots) return false;
    if (!(r->kind == Kind::free ? send_end(wire) : send_slot(wire, *r))) return true;
    if (state_ != State::open) return false;
  }
  return false;
}

bool Sender::send_slot(Wire& wire, Request& r) {
  const std::uint32_t n = std::min(r.size - r.moved, shape_.payload());
  const bool last = r.moved + n == r.size;
  if (!put(wire, {.octets = n, .flags = last ? 0u : SlotHeader::kMore}, r.buffer + r.moved)) return false;
  r.moved += n;
  if (last) queue_.end_front();
  return true;
}

// The free ends here: the sender does not wait for the receiver. The block waits (over()).
bool Sender::send_end(Wire& wire) {
  if (!put(wire, {.octets = 0, .flags = SlotHeader::kEnd}, nullptr)) return false;
  queue_.end_front();
  enter(State::lingering);
  return true;
}

bool Sender::put(Wire& wire, SlotHeader header, const std::byte* payload) {
  const std::uint32_t from = from_.at();
  std::memcpy(slot(from), &header, sizeof header);
  if (header.octets != 0) std::memcpy(slot(from) + sizeof header, payload, header.octets);
  const Put how = wire.put(*this, from, to_.at(), header.octets + sizeof header, filled_ + 1);
  if (how == Put::no_room) return false;
  ++filled_;
  to_.advance(receive_slots_);
  if (how == Put::copied) return true;
  ++staged_;
  from_.advance(shape_.slots);
  return true;
}

void Sender::receiver_closed() {
  if (state_ == State::lingering) return enter(State::closed);
  if (state_ != State::closed) lose(EPROTO);
}

void Sender::lose(int error) {
  if (state_ == State::closed || state_ == State::lost) return;
  error_ = static_cast<std::int16_t>(error);
  enter(State::lost);
  end_all(error);
}

}  // namespace ewarp::acp
