// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What both ends of a channel have in common. An end, what its peer writes to, and its slots are one block of memory,
// so that what a channel costs can be told by a formula:
//
//   sender    168 + SB * slot octets: Sender, SenderWords, slots
//   receiver  160 + RB * slot octets: Receiver, ReceiverWords, slots
//
// No I/O, no clock, no allocation: a Wire posts what an end wants posted, and tells it what happened.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mpi_shim/acp/core/request.h"
#include "mpi_shim/acp/core/wire.h"

namespace ewarp::acp {

class Sender;
class Receiver;

// Memory of the peer that an end may write to.
struct Remote {
  std::uint64_t address;
  std::uint32_t rkey;
};

// Of an end: which peer, and the n-th channel of this direction between the two (from 0).
struct Place {
  std::uint32_t peer;    // rank
  std::uint32_t number;  // of this end, in this process
  std::uint32_t order;
};

// What the slots are like; the same for all channels of a process.
struct Shape {
  std::uint32_t slot_size;  // octets, header included; a multiple of 8
  std::uint32_t slots;
  Mode mode;

  std::uint32_t payload() const { return slot_size - static_cast<std::uint32_t>(sizeof(SlotHeader)); }
};

// Slots so far are counted modulo 2^32. Counts begin shortly before they wrap, so that every test sees it.
inline constexpr std::uint32_t kFirstCount = 0u - 100;

// Where the next slot of a ring is. A count modulo the length of the ring would jump where the count wraps.
class RingPlace {
 public:
  std::uint32_t at() const { return at_; }
  void advance(std::uint32_t slots) {
    if (++at_ >= slots) at_ = 0;
  }

 private:
  std::uint32_t at_ = 0;
};

enum class Put {
  no_room,  // nothing was posted: ask again
  posted,   // Sender::written() will be told when the slot's memory may be used again
  copied,   // it may be used at once
};

// What ends have posted. A false result: nothing was posted, the path has no room (or it is not this end's turn);
// advance() has to be called again.
class Wire {
 public:
  // An atomic on the owner of an entry of the peer's CRB; its result becomes SenderWords::found. entry counts from the
  // one that this process begins with.
  virtual bool claim(Sender& end, std::uint32_t entry) = 0;
  // The request itself, into the entry that was claimed.
  virtual bool ask(Sender& end, std::uint32_t entry) = 0;
  // `octets` from the send buffer's slot `from`, header included, to the receive buffer's slot `to`. filled: slots so
  // far, this one included.
  virtual Put put(Sender& end, std::uint32_t from, std::uint32_t to, std::uint32_t octets, std::uint32_t filled) = 0;
  virtual bool answer(Receiver& end) = 0;
  // n more slots are empty, emptied so far.
  virtual bool credit(Receiver& end, std::uint32_t n, std::uint32_t emptied) = 0;
  virtual bool tell_closed(Receiver& end) = 0;

 protected:
  ~Wire() = default;
};

class End {
 public:
  bool sends() const { return sends_; }
  std::uint32_t peer() const { return peer_; }
  std::uint32_t number() const { return number_; }
  std::uint32_t order() const { return order_; }
  Remote remote() const { return {remote_address_, remote_rkey_}; }
  std::uint32_t remote_end() const { return remote_end_; }

  void push(Request& r) { queue_.push(r); }
  bool has_requests() const { return queue_.front() != nullptr; }
  // The program has freed it: its handle is good for nothing else.
  bool freed() const { return freed_; }
  void set_freed() { freed_ = true; }

  // What the path has under way that names this end's memory. The memory must not be given back before it is 0.
  std::uint32_t under_way() const { return under_way_; }
  void posted() { ++under_way_; }
  void completed() { --under_way_; }

  // Of whoever owns the end: a chain of those that have something to do, and the registration of the block.
  End* next = nullptr;
  void* region = nullptr;
  bool chained = false;

 protected:
  End(bool sends, const Place& place)
      : sends_(sends), number_(static_cast<std::uint16_t>(place.number)), peer_(place.peer), order_(place.order) {}
  void connect(const Remote& remote, std::uint32_t end) {
    remote_address_ = remote.address;
    remote_rkey_ = remote.rkey;
    remote_end_ = static_cast<std::uint16_t>(end);
  }
  // Every request of the queue ends with this errno.
  void end_all(int error) {
    while (queue_.front() != nullptr) queue_.end_front(error);
  }

 private:
  bool sends_;
  bool freed_ = false;
  std::uint16_t number_;
  std::uint16_t remote_end_ = 0;
  std::uint16_t under_way_ = 0;
  std::uint32_t remote_rkey_ = 0;
  std::uint32_t peer_;
  std::uint32_t order_;
  std::uint64_t remote_address_ = 0;

 protected:
  RequestQueue queue_;
};

}  // namespace ewarp::acp
