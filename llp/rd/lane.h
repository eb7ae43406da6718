// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The two directions of a lane while it has something in it: what was sent and not acknowledged, and what arrived ahead
// of its turn. Neither knows about time or about the other lane.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "llp/rd/types.h"
#include "llp/rd/upper.h"
#include "llp/ring.h"

namespace ewarp::llp::rd {

struct Sent {
  Outgoing segment;
  Time at = 0;              // of the first transmission
  std::uint64_t order = 0;  // of the last one, among all transmissions of the association
  std::uint32_t octets = 0;
  bool sacked = false;
  bool lost = false;    // to be sent again
  bool again = false;   // was sent more than once
  bool failed = false;  // its message was reported: goes out without payload
};

// What an acknowledging datagram brought.
struct Progress {
  bool any = false;
  std::uint32_t octets = 0;
  std::uint64_t newest = 0;    // order of the newest segment that it acknowledges
  std::optional<Time> sample;  // when that one was sent, if it was sent once
};

class SendLane {
 public:
  bool empty() const { return sent_.empty(); }
  std::uint32_t size() const { return static_cast<std::uint32_t>(sent_.size()); }
  Sent& at(std::size_t i) { return sent_.at(i); }
  std::uint32_t in_flight() const { return in_flight_; }  // octets neither acknowledged nor lost
  bool has_lost() const { return lost_ > 0; }

  void push(Sent sent);
  // Takes the oldest off.
  Sent pop(Progress& progress);
  void sack(std::size_t i, Progress& progress);
  // The report about a segment is as good as its acknowledgement.
  void settle(std::size_t i);
  // Marks what SACK shows to be lost; the order of the newest of it, 0 if there is nothing.
  std::uint64_t detect_losses();
  // A timeout: all that was not SACKed is lost, and the oldest in any case.
  void lose_all();
  void lose(std::size_t i);
  // The oldest lost one is being sent again. Requires: has_lost().
  std::size_t first_lost();
  void resent(std::size_t i, std::uint64_t order);
  // From segment i on, the message's memory is not needed any more.
  void fail_message(std::uint64_t message);

 private:
  void note(const Sent& s, Progress& progress) const;
  Ring<Sent> sent_;
  std::uint32_t in_flight_ = 0, lost_ = 0, sacked_ = 0;
};

// A segment that waits for its turn.
struct Held {
  std::uint32_t psn = 0;
  std::uint32_t octets = 0;  // of the whole segment
  bool placed = false;
  std::optional<std::uint32_t> immediate, error_psn;
  std::vector<std::byte> segment;
  std::size_t cost() const { return segment.capacity(); }
};

class ReceiveLane {
 public:
  bool empty() const { return first_ == held_.size(); }
  bool holds(std::uint32_t psn) const { return position(psn) < held_.size(); }
  // Requires: !holds(held.psn), and that all of them lie within a window.
  void insert(Held held);
  const Held* find(std::uint32_t psn) const;
  void erase(std::uint32_t psn);
  SackWords words(std::uint32_t next) const;
  // Octets of memory; 0 if it is empty.
  std::size_t cost() const { return held_.capacity() * sizeof(Held) + segments_; }
  // The most by which insert() of a segment of so many octets raises cost().
  std::size_t cost_to_insert(std::size_t octets) const {
    return (next_capacity() - held_.capacity()) * sizeof(Held) + octets;
  }

 private:
  std::size_t position(std::uint32_t psn) const;  // held_.size(): nowhere
  std::size_t next_capacity() const;
  void make_room();
  // By PSN. What was delivered is taken off the front by counting, so that filling one hole is not quadratic. At least
  // half of a full array is alive, or the dead part goes.
  std::vector<Held> held_;
  std::size_t first_ = 0;
  std::size_t segments_ = 0;  // octets of all Held::cost()
};

}  // namespace ewarp::llp::rd
