// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The receiving end of a channel: answers the sender's request, copies messages out of its slots in the order in which
// they come, and gives the slots back.
#pragma once

#include "mpi_shim/acp/core/end.h"

namespace ewarp::acp {

class Receiver final : public End {
 public:
  enum class State : std::uint8_t {
    waiting,    // for the sender's request
    answering,  // it is here; the answer is yet to be posted
    open,       // connected
    closing,    // the sender's last slot was taken; it is yet to be told
    closed,     // nothing comes any more
    lost,       // the peer is gone, or does not fit; error() says why
  };
  static constexpr bool allowed(State from, State to);

  // See Sender.
  static std::size_t block_octets(const Shape& shape);
  static Receiver& create(void* block, const Place& place, const Shape& shape);

  State state() const { return state_; }
  int error() const { return error_; }
  ReceiverWords& words() { return *reinterpret_cast<ReceiverWords*>(this + 1); }
  std::byte* slot(std::uint32_t i) {
    return reinterpret_cast<std::byte*>(&words() + 1) + std::size_t{i} * shape_.slot_size;
  }
  std::size_t open_octets() const { return block_octets(shape_) - sizeof(Receiver); }

  // The sender's request; what to answer (all but the rkey).
  void asked(const ConnectRequest& request);
  Answer answer() const;

  // See Sender.
  bool advance(Wire& wire);
  // The next slot is full. False: all were.
  bool arrived(std::uint32_t n = 1);
  // Mode `paper`: looks at words().tail.
  void look_at_tail();
  // What has arrived can still be received; requests that it does not satisfy end with this errno.
  void lose(int error);

  bool over() const { return freed() && under_way() == 0 && (state_ == State::closed || state_ == State::lost); }

 private:
  Receiver(const Place& place, const Shape& shape) : End(false, place), shape_(shape) {}
  void enter(State to);
  bool take_all(Wire& wire);
  bool take_slot(Request& r);
  void empty_slot();
  void receive_slot(Request& r, SlotHeader header, const std::byte* payload);
  bool give_back(Wire& wire, std::uint32_t least);
  void end_of_channel(Request& r);

  State state_ = State::waiting;
  std::int16_t error_ = 0;
  std::uint32_t arrived_ = kFirstCount;   // slots so far
  std::uint32_t taken_ = kFirstCount;     // of these, emptied
  std::uint32_t credited_ = kFirstCount;  // of these, told to the sender
  RingPlace next_;                        // the slot that is emptied next
  const Shape& shape_;
};
static_assert(sizeof(Receiver) + sizeof(ReceiverWords) <= 160, "the formula of what a channel costs");

constexpr bool Receiver::allowed(State from, State to) {
  using enum State;
  if (to == lost) return from != closed;
  switch (from) {
    case waiting:
      return to == answering;
    case answering:
      return to == open;
    case open:
      return to == closing;
    case closing:
      return to == closed;
    case closed:
    case lost:
      return false;
  }
  return false;
}

}  // namespace ewarp::acp
