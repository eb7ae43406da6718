// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the processes of a job write into each other's memory, and the immediate data that announce it. The hosts are
// little-endian and of one kind (x86-64), so structs go as the CPU has them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ewarp::acp {

// In front of each slot's payload.
struct SlotHeader {
  enum Flag : std::uint32_t {
    kMore = 1,  // the message goes on in the next slot
    kEnd = 2,   // no message: the sender has freed its end
  };
  std::uint32_t octets;  // of payload
  std::uint32_t flags;
};
static_assert(sizeof(SlotHeader) == 8);

// An entry of the ring of connection requests (CRB). A sender claims it by an atomic on `owner`, then writes the rest.
struct ConnectRequest {
  std::uint64_t owner;  // 0: free; else the claiming rank + 1
  std::uint32_t rank;
  std::uint32_t end;      // the sender's number for its end
  std::uint64_t address;  // where the sender wants its Answer, and in mode `paper` the head
  std::uint32_t rkey;
  std::uint32_t slot_size;  // octets
  std::uint32_t mode;       // acp::Mode
  std::uint32_t reserved[7];
};
static_assert(sizeof(ConnectRequest) == 64);
inline constexpr std::size_t kRequestBody = offsetof(ConnectRequest, rank);  // written behind the claim

// What the receiver writes to the sender: the channel is connected, or why not.
struct Answer {
  std::uint64_t address;  // of the receiver's words; the slots lie behind them
  std::uint32_t rkey;
  std::uint32_t slots;  // of the receive buffer
  std::uint32_t end;    // the receiver's number for its end
  std::int32_t error;   // 0, or an errno: the ends do not fit together
};
static_assert(sizeof(Answer) == 24);

// Of a sender's end, written by its receiver.
struct SenderWords {
  std::uint64_t head;  // mode `paper`: slots that the receiver has emptied so far
  Answer answer;
  std::uint64_t found;  // what a claim found in ConnectRequest::owner
};
static_assert(sizeof(SenderWords) == 40);

// Of a receiver's end, written by its sender; the slots follow.
struct ReceiverWords {
  std::uint64_t tail;  // mode `paper`: slots that the sender has filled so far
};
static_assert(sizeof(ReceiverWords) == 8);

enum class Notice : std::uint8_t {
  slot = 1,  // to a receiver's end: the next slot is full
  credit,    // to a sender's end: `count` slots are empty again
  request,   // to the process: the entry `end` of its CRB is filled
  answer,    // to a sender's end: its Answer is there
  closed,    // to a sender's end: the receiver's end is gone
};

// Immediate data: 3 bits notice, 15 bits end, 14 bits count.
struct Immediate {
  static constexpr std::uint32_t kEnds = 1u << 15, kCounts = 1u << 14;
  Notice notice;
  std::uint32_t end;
  std::uint32_t count;

  static Immediate parse(std::uint32_t in) {
    return {static_cast<Notice>(in >> 29), (in >> 14) & (kEnds - 1), in & (kCounts - 1)};
  }
  // Requires: end < kEnds, count < kCounts.
  std::uint32_t emit() const { return static_cast<std::uint32_t>(notice) << 29 | end << 14 | count; }
  bool operator==(const Immediate&) const = default;
};

enum class Mode : std::uint8_t {
  paper,      // three operations a slot: the slot, the tail, the head
  immediate,  // one, which has immediate data; heads in batches
};

}  // namespace ewarp::acp
