// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The control messages, octet by octet (docs/design/channel.md has the figures). Big-endian. A message is what one Send
// carries.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "mpi_shim/channel/core/types.h"

namespace ewarp::channel::wire {

enum class Kind : std::uint8_t {
  eager = 1,           // the payload follows
  sender_ready = 2,    // body: where the data is; id: what to name in the release; the first octets may follow
  receiver_ready = 3,  // an announcement, or the answer to SENDER_READY; body: where to write; id: the immediate
  written = 4,         // behind a Write, where the peer takes no immediate; body: the id that would have been it
  retract = 5,         // what was announced for this tag is not to be used any more
  retracted = 6,       // is not used any more
  note = 7,            // nothing but credits and releases
  told = 8,            // behind a put: the attached octets are for the target's owner
  call = 9,            // a question of the application's follows; body: the id of the request that waits for the answer
  answer = 10,         // what was answered follows; body: id as above
  more = 11,           // the next piece of an EAGER message, a question or an answer follows
  recall = 12,         // of credits, the reader is to keep `number` at most, and use up the others
  unused = 13,         // uses up a credit that is not to be renewed
};

namespace flag {
inline constexpr std::uint8_t kHybrid = 0x01;  // SENDER_READY: the data is in a buffer of the channel's; Read it
inline constexpr std::uint8_t kByRead = 0x02;  // SENDER_READY: Read it; neither: answer, and it will be written
inline constexpr std::uint8_t kDeclined =
    0x04;                                      // SENDER_READY: the announcement of this number was seen and is not used
inline constexpr std::uint8_t kAnswer = 0x08;  // RECEIVER_READY: to a SENDER_READY
inline constexpr std::uint8_t kReserve = 0x10;  // a note that used no credit
inline constexpr std::uint8_t kFloor = 0x20;    // the number from which tags that were never used start
inline constexpr std::uint8_t kClosing = 0x40;  // the sender is about to leave: releases are wanted at once
}  // namespace flag

namespace extra {
inline constexpr std::uint8_t kData = 0x01;     // 8 octets that the sender attached follow
inline constexpr std::uint8_t kConfirm = 0x02;  // EAGER: with a body, whose id is released when the message has come
inline constexpr std::uint8_t kTaken = 0x04;    // RECEIVER_READY, an answer: the first octets have been stored
}  // namespace extra

// In an immediate: the message has the attached octets that the last message of this peer with any had.
inline constexpr std::uint32_t kSameData = 0x80000000;

// A buffer at the peer.
struct Remote {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  bool operator==(const Remote&) const = default;
};

// In a release: the request of a sender whose data was read; otherwise a buffer of HYBRID.
inline constexpr std::uint32_t kRequestId = 0x80000000;

struct Message {
  static constexpr std::size_t kBase = 32, kFloorField = 8, kDataField = 8, kBody = 16, kMostReleases = 15;
  static constexpr std::size_t kLongest = kBase + kFloorField + kDataField + kBody + 4 * kMostReleases;

  Kind kind = Kind::note;
  std::uint8_t flags = 0;
  std::uint8_t release_count = 0;
  std::uint8_t extras = 0;
  std::uint32_t credits = 0;  // how many messages in all the reader may have sent
  Tag tag = 0;
  std::uint64_t number = 0;  // of the message among those of the (peer, tag)
  std::uint64_t size = 0;    // of the message; RECEIVER_READY: of the buffer; MORE: of this piece
  std::uint64_t floor = 0;   // with kFloor
  std::uint64_t data = 0;    // with kData
  Remote remote;             // of kinds with a body
  std::uint32_t id = 0;      // of kinds with a body
  std::array<std::uint32_t, kMostReleases> releases{};

  bool has(std::uint8_t f) const { return (flags & f) != 0; }
  bool has_extra(std::uint8_t e) const { return (extras & e) != 0; }
  bool has_body() const {
    return kind == Kind::sender_ready || kind == Kind::receiver_ready || kind == Kind::written || kind == Kind::call ||
           kind == Kind::answer || has_extra(extra::kConfirm);
  }
  std::optional<std::uint64_t> attached() const { return has_extra(extra::kData) ? std::optional(data) : std::nullopt; }
  // SENDER_READY that the receiver answers.
  bool may_have_head() const { return kind == Kind::sender_ready && !has(flag::kHybrid) && !has(flag::kByRead); }
  bool has_payload() const {
    return kind == Kind::eager || kind == Kind::call || kind == Kind::answer || kind == Kind::more || may_have_head();
  }
  std::size_t octets() const;
  // Writes octets() octets. Requires: out.size() >= kLongest.
  void emit(MutableOctets out) const;
  // *used: octets of the header; the rest is payload. Nothing if the octets are no message: too few, an unknown kind or
  // flag, more releases than fit, a payload where none belongs, or more of it than the header says.
  static std::optional<Message> parse(Octets in, std::size_t* used);
  bool operator==(const Message&) const = default;
};

}  // namespace ewarp::channel::wire
