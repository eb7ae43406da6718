// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The sending end of a channel: claims an entry of the receiver's CRB, asks, and, once answered, copies messages into
// the slots of its send buffer, which the Wire puts into the receiver's. Frees end with a slot that says so.
#pragma once

#include "mpi_shim/acp/core/end.h"

namespace ewarp::acp {

class Sender final : public End {
 public:
  enum class State : std::uint8_t {
    waiting,    // for its turn, or for an entry of the CRB
    claiming,   // the atomic is under way
    claimed,    // the entry is ours, and empty
    asking,     // the request is written; the receiver answers when it has created its end
    open,       // connected
    lingering,  // the last slot is put: the receiver has yet to say that it is gone
    closed,     // nothing comes any more
    lost,       // the peer is gone, or does not fit; error() says why
  };
  static constexpr bool allowed(State from, State to);

  static constexpr std::uint32_t kEntries = 64;           // of a CRB
  static constexpr std::uint64_t kFullPause = 1'000'000;  // ns between two rounds through a full CRB

  // The Sender, its words and its slots in one block of block_octets(shape), 8-aligned, zeroed. The Sender needs no
  // destruction. shape is kept by reference.
  static std::size_t block_octets(const Shape& shape);
  static Sender& create(void* block, const Place& place, const Shape& shape);

  State state() const { return state_; }
  int error() const { return error_; }
  SenderWords& words() { return *reinterpret_cast<SenderWords*>(this + 1); }
  std::byte* slot(std::uint32_t i) {
    return reinterpret_cast<std::byte*>(&words() + 1) + std::size_t{i} * shape_.slot_size;
  }
  // What the peer may write to: address and octets.
  std::size_t open_octets() const { return block_octets(shape_) - sizeof(Sender); }

  // Posts what can be posted. True: there is more to do, but the path or the time stands in the way, so that no event
  // will tell.
  bool advance(Wire& wire, std::uint64_t now);
  // The claim is done: words().found says whether it succeeded.
  void claim_done(std::uint64_t now);
  // words().answer is there.
  void answered();
  // So many more slots of the receive buffer are empty. False: there are not so many.
  bool credited(std::uint32_t n);
  // Mode `paper`: looks at words().head.
  void look_at_head();
  // A slot that was posted (Put::posted) is placed: its memory may be used again. In the order of posting.
  void written() { ++returned_; }
  // The receiver's end is gone.
  void receiver_closed();
  void lose(int error);

  // Nothing will touch the block again.
  bool over() const { return freed() && under_way() == 0 && (state_ == State::closed || state_ == State::lost); }

 private:
  Sender(const Place& place, const Shape& shape) : End(true, place), shape_(shape) {}
  void enter(State to);
  void next_entry(std::uint64_t now);
  bool send_all(Wire& wire);
  bool send_slot(Wire& wire, Request& r);
  bool send_end(Wire& wire);
  bool put(Wire& wire, SlotHeader header, const std::byte* payload);

  State state_ = State::waiting;
  std::int16_t error_ = 0;
  std::uint16_t entry_ = 0;  // of the CRB
  std::uint16_t tries_ = 0;  // entries that were taken, in this round
  std::uint32_t receive_slots_ = 0;
  std::uint32_t filled_ = kFirstCount;    // slots of the receive buffer, so far
  std::uint32_t emptied_ = kFirstCount;   // of these
  std::uint32_t staged_ = kFirstCount;    // slots of the send buffer that were posted, so far
  std::uint32_t returned_ = kFirstCount;  // of these, placed
  RingPlace to_;                          // the next slot of the receive buffer
  RingPlace from_;                        // the next one of the send buffer
  std::uint64_t again_ = 0;               // ns: no claim before
  const Shape& shape_;
};
static_assert(sizeof(Sender) + sizeof(SenderWords) <= 168, "the formula of what a channel costs");

constexpr bool Sender::allowed(State from, State to) {
  using enum State;
  if (to == lost) return from != closed;
  switch (from) {
    case waiting:
      return to == claiming;
    case claiming:
      return to == claimed || to == waiting;
    case claimed:
      return to == asking;
    case asking:
      return to == open;
    case open:
      return to == lingering;
    case lingering:
      return to == closed;
    case closed:
    case lost:
      return false;
  }
  return false;
}

}  // namespace ewarp::acp
