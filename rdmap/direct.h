// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A payload that is received straight into its target.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <span>

#include "ddp/header.h"
#include "llp/crc32c.h"
#include "rdmap/segment.h"

namespace ewarp::rdmap {

// The segment's head came by way of staging. The octets that extents() name come next, in order; behind them, by way of
// staging again, the trailer: the end of what a peer writes or answers to a Read, PAD and the CRC field. That end is
// kept back because programs wait for the last octet of such a payload, and the kernel stores in an order of its own:
// it is stored last, by a guarded copy.
class DirectPayload {
 public:
  enum class State : std::uint8_t {
    idle,     // no such segment
    payload,  // the next octets of the stream belong into extents()
    trailer,  // they have arrived; what is missing comes by way of staging
  };

  // crc: whether the CRC field has to be right.
  explicit DirectPayload(bool crc) : with_crc_(crc) {}

  State state() const { return state_; }
  bool idle() const { return state_ == State::idle; }
  bool crc() const { return with_crc_; }

  // A copy of the segment's DDP header, which is needed for longer than it lies in staging.
  Octets keep_header(Octets header);
  // staged: the FPDU as far as it came, `present` octets of the payload among it, which are placed. Requires: idle(),
  // and more octets of payload are missing than are kept back. The segment stays as it is until this is idle again.
  void begin(const Segment& segment, std::size_t present, Octets staged);
  // Where the next octets belong; empty but for State::payload.
  ExtentList extents() const {
    return state_ == State::payload ? slice(segment_->target, position(), left_) : ExtentList();
  }
  // Octets that belong into extents().
  std::size_t left() const { return left_; }
  // Where the next octet stands in the payload.
  std::size_t position() const { return payload_ - kept_ - left_; }

  // The next octets have arrived in staging, and were placed.
  void placed(Octets octets);
  // The next octets have arrived where they belong. False: with a CRC, they could not be read there (any more).
  // Requires: the region is held, if there is a CRC; octets <= left(), and with a CRC one extent has them all.
  bool arrived(std::size_t octets);

  // Octets of the trailer, and of the payload at its front.
  std::size_t trailer() const { return kept_ + skip_; }
  std::size_t kept() const { return kept_; }
  // The trailer is here. False: the CRC is wrong. Requires: State::trailer.
  bool finish(Octets trailer);
  // It will never be complete.
  void stop();

  static constexpr bool allowed(State from, State to) {
    switch (to) {
      case State::idle:
        return true;
      case State::payload:
        return from == State::idle;
      case State::trailer:
        return from == State::payload;
    }
    return false;
  }

 private:
  void enter(State next) {
    assert(allowed(state_, next));
    state_ = next;
  }
  void advance(std::size_t octets);

  State state_ = State::idle;
  bool with_crc_;
  llp::Crc32c sum_;
  const Segment* segment_ = nullptr;
  std::size_t payload_ = 0;  // octets of the whole segment's
  std::size_t left_ = 0;
  std::size_t kept_ = 0;
  std::size_t skip_ = 0;  // PAD and CRC field
  std::array<std::byte, ddp::UntaggedHeader::kSize> header_{};
};

}  // namespace ewarp::rdmap
