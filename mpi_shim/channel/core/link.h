// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What is between us and one peer: the queue of what is to be sent, credits, and what rides along with messages.
//
// Credits: a peer has posted a window of receives for us, plus kReserve for notes that only return credits. Every Send
// and every Write with immediate uses one; messages tell, as a running total, how many may be sent in all.
//
// The window begins small, since receives are used in turn: what goes round in all of `receive_depth` is in no cache,
// and a message of 64 KiB takes a tenth longer. It doubles when credits have to be returned by a message of their own,
// and shrinks while a quarter of it would do.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "mpi_shim/channel/core/announce.h"
#include "mpi_shim/channel/core/counters.h"
#include "mpi_shim/channel/core/list.h"
#include "mpi_shim/channel/core/operation.h"
#include "mpi_shim/channel/core/transport.h"

namespace ewarp::channel {

// One request to the transport, from when it is wanted until it is complete.
struct Outgoing {
  // confirm: a ping behind all that was pushed before.
  enum class What : std::uint8_t { send, write, write_immediate, read, ping, confirm };

  What what = What::send;
  PeerId peer = 0;
  wire::Message message;              // send
  std::unique_ptr<std::byte[]> copy;  // send, write: of the payload, where it could not go at once
  std::byte* data = nullptr;          // payload, source or target
  std::size_t length = 0;
  const Exposed* memory = nullptr;  // write, read
  wire::Remote remote;
  std::uint32_t immediate = 0;
  Operation* operation = nullptr;       // to be told of the completion
  std::optional<std::uint32_t> buffer;  // write: of HYBRID, which is free when it is complete
  bool inject = false;                  // send, write: the source is copied when it is taken
  bool copied = false;                  // send, write: it was
  Links<Outgoing> links;

  bool needs_credit() const { return what == What::send || what == What::write_immediate; }
  Octets source() const { return {data, length}; }
};

// Objects that are used again.
class OutgoingPool {
 public:
  Outgoing& take(Outgoing::What what, PeerId peer);
  void give(Outgoing& o);

  std::size_t stalled = 0;  // links that are up and have something that could not be handed over

 private:
  std::vector<std::unique_ptr<Outgoing>> all_;
  std::vector<Outgoing*> free_;
};

class Link {
 public:
  // Receives that are posted beyond the credits. A note that returns credits covers at least half of them, and the peer
  // needs those for the messages that would justify a third note: two at most are under way.
  static constexpr std::uint32_t kReserve = 4;
  // What the transport posts for a peer: one message is being looked at while its credit is already returned.
  static constexpr std::uint32_t receives(std::uint32_t window) { return window + kReserve + 1; }
  static constexpr std::uint32_t first_window(const Tuning& tuning) { return std::min(tuning.receive_depth, 8u); }
  // Serial arithmetic: a total that is older than another would be so far ahead of it.
  static constexpr std::uint32_t kHalf = 0x80000000u;
  static constexpr std::size_t kReleaseBatch = 8;  // as many releases make a message of their own

  Link(PeerId peer, const Tuning& tuning, Transport& transport, OutgoingPool& pool, Counters& counters);

  enum class State : std::uint8_t {
    unconnected,  // nobody has asked for the peer; it may connect to us
    connecting,   // the transport was asked to
    up,
    down,  // for good: everything that waited is forgotten
  };
  static constexpr bool allowed(State from, State to) {
    switch (to) {
      case State::unconnected:
        return false;  // a link begins so
      case State::connecting:
        return from == State::unconnected;
      case State::up:
        return from == State::unconnected || from == State::connecting;
      case State::down:
        return from != State::down;
    }
    return false;
  }
  State state() const { return state_; }
  PeerId peer() const { return peer_; }
  void set_up();
  // Everything that was not given to the transport is forgotten.
  void set_down();

  // Begins to connect, unless that was done.
  void connect();
  // Everything goes out in the order of push(), but Reads and pings, which overtake.
  // True if nothing waits afterwards: it was handed over.
  bool push(Outgoing& o);
  // Replaces the payload of a Send or Write that waits by a copy.
  void copy_payload(Outgoing& o);
  // Hands over as much as the path and the credits allow.
  void flush();
  bool idle() const { return queue_.empty() && reads_.empty() && under_way_ == 0; }

  // An answer came, so the transport does not own o any more.
  void completed(Outgoing& o);
  // What every message carries. reserve: it used no credit.
  void on_received(const wire::Message& m);
  // A Write with immediate used a receive.
  void on_immediate() { use_receive(); }
  void release(std::uint32_t id, bool at_once);
  // The peer gets no more credits than it was told of, until they are given again. Notes without a credit still come.
  // True if that is new.
  bool hold_credits();
  void give_credits();
  // From now on every release goes out at once.
  void set_peer_closing() { peer_closing_ = urgent_ = true; }

  SentNumbers sent;
  ArrivedNumbers arrived;
  // With ordered_completions: receives that are fetched from buffers of HYBRID, and what came to its end behind them.
  List<Operation, &Operation::ending> ends;
  std::vector<Tag> retracting;                        // RETRACT is out, RETRACTED has not come
  std::uint32_t announced = 0;                        // our receives whose announcements the peer may hold
  std::size_t copied = 0;                             // octets of copies in the queue
  std::size_t pending = 0;                            // requests that end when the peer does
  std::optional<std::uint64_t> data_told, data_seen;  // what was attached last, to our messages and to theirs
  std::uint64_t heard_at = 0;
  std::uint64_t pinged_at = 0;  // 0: no ping is out

 private:
  void enter(State to);  // the only writer of the state
  std::uint32_t credits_left() const { return granted_ - used_; }
  // The peer may send so many in all; of so many it does not know.
  std::uint32_t grant() const { return holding_ ? told_ : consumed_ + window_; }
  // What the peer was told is never taken back.
  std::uint32_t untold() const {
    assert(grant() - told_ < kHalf);
    return grant() - told_;
  }
  void use_receive();
  void widen();
  bool hand_over(Outgoing& o);
  bool send(Outgoing& o, bool reserve);
  bool solicits(const Outgoing& o) const;
  void note_stall();
  void push_note();
  void return_credits();

  PeerId peer_;
  const Tuning& tuning_;
  Transport& transport_;
  OutgoingPool& pool_;
  Counters& counters_;
  State state_ = State::unconnected;
  bool peer_closing_ = false, note_queued_ = false, urgent_ = false, stalled_ = false;
  bool holding_ = false;  // credits
  List<Outgoing, &Outgoing::links> queue_, reads_;
  std::size_t under_way_ = 0;
  // Totals modulo 2^32, but window_ and left_then_.
  std::uint32_t granted_, used_ = 0;  // what we may send
  std::uint32_t left_then_;           // credits that were left when the last ones came
  std::uint32_t window_;              // receives for the peer
  std::uint32_t consumed_ = 0;        // receives that were used
  std::uint32_t told_;                // grant() when the peer was told last
  std::uint32_t most_untold_ = 0;     // since the window was looked at last
  std::uint64_t floor_told_ = 0;
  std::vector<std::uint32_t> releases_;
};

}  // namespace ewarp::channel
