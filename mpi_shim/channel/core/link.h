// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What is between us and one peer: the queue of what is to be sent, credits, and what rides along with messages.
//
// Order: what is pushed goes out in that order, but for Reads and pings, which overtake, and for the Writes of
// rendezvous that wait for room. Of those the adapter has `write_window` octets at a time, since nothing passes what it
// has; only `narrow_window` for a while after a small message that passed. The others wait, and what is pushed
// meanwhile passes them, unless somebody could tell:
// * a message of the same (peer, tag) that the peer would count as the one that is written;
// * one that attaches other octets than the message before it: immediates refer to those;
// * RETRACTED, which promises that no Write comes, a put and what is told behind it, a question, an answer.
// Such a one waits behind the Writes, and nothing passes it.
//
// Credits: a peer has posted a window of receives for us, and one for a note that only returns credits. Every Send and
// every Write with immediate uses one; messages tell, as a running total, how many may be sent in all.
//
// The window begins with one receive: those of a peer that says nothing are of no use to anybody else, and what goes
// round in all of `receive_depth` is in no cache. It doubles when credits have to be returned by a message of their
// own, and shrinks while a quarter of it would do. What it has beyond the first one is borrowed from a ReceiveBudget
// that all links share. A link that is to give some of it back renews fewer credits than it uses up; a peer that sends
// nothing is asked (RECALL) to use up credits by empty messages (UNUSED).
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
#include "mpi_shim/channel/core/receive_budget.h"
#include "mpi_shim/channel/core/transport.h"

namespace ewarp::channel {

struct Stored;

// One request to the transport, from when it is wanted until it is complete.
struct Outgoing {
  // confirm: a ping behind all that was pushed before.
  enum class What : std::uint8_t { send, write, write_immediate, read, ping, confirm };

  What what = What::send;
  PeerId peer = 0;
  wire::Message message;              // send, and see tells_length
  std::unique_ptr<std::byte[]> copy;  // send, write: of the payload, where it could not go at once
  std::byte* data = nullptr;          // payload, source or target
  std::size_t length = 0;
  const Exposed* memory = nullptr;  // write, read
  wire::Remote remote;
  std::uint32_t immediate = 0;
  Operation* operation = nullptr;       // to be told of the completion
  std::optional<std::uint32_t> buffer;  // write: of HYBRID, which is free when it is complete
  bool paced = false;                   // write: of a rendezvous
  bool tells_length = false;            // paced: of the message. If it is divided, `message` tells it, a WRITTEN
  std::optional<Tag> unheard;           // paced, WRITTEN: the key of a message that the peer has heard nothing of
  bool holds = false;                   // it waits among the paced ones, and nothing passes it
  std::uint64_t order = 0;              // in which it was pushed
  bool inject = false;                  // send, write: the source is copied when it is taken
  bool copied = false;                  // send, write: it was
  bool handed_over = false;             // the transport has it
  Links<Outgoing> links;

  bool needs_credit() const { return what == What::send || what == What::write_immediate; }
  // It goes on with the message of the one before it.
  bool continues() const { return what == What::send && message.kind == wire::Kind::more; }
  bool tells_written() const { return what == What::send && message.kind == wire::Kind::written; }
  Octets source() const { return {data, length}; }
};

// A message that comes in pieces, of which some have come.
struct Incomplete {
  Operation* receive = nullptr;   // goes there, or
  Stored* stored = nullptr;       // there, or
  std::vector<std::byte> octets;  // there: a question or an answer, whose first message is:
  wire::Message first;
  std::size_t missing = 0;  // octets that are to come; 0: there is no such message
};

// Objects that are used again.
class OutgoingPool {
 public:
  Outgoing& take(Outgoing::What what, PeerId peer);
  void give(Outgoing& o);
  // So many take() in a row find memory. Throws std::bad_alloc.
  void reserve(std::size_t count);

  std::size_t stalled = 0;  // links that are up and have something that could not be handed over

 private:
  std::vector<std::unique_ptr<Outgoing>> all_;
  std::vector<Outgoing*> free_;
};

class Link {
 public:
  // Receives that are posted beyond the credits: for a note that returns credits. There is no second one before the
  // peer has used what the first one gave.
  static constexpr std::uint32_t kReserve = 1;
  // What each peer has for as long as it is connected.
  static constexpr std::uint32_t kFirstWindow = 1;
  // What the transport posts for a peer.
  static constexpr std::uint32_t receives(std::uint32_t window) { return window + kReserve; }
  static std::size_t receive_octets(const Tuning& tuning) { return wire::Message::kLongest + tuning.piece(); }
  // How many receives all links may borrow together.
  static std::uint32_t shared_receives(const Tuning& tuning) {
    return static_cast<std::uint32_t>(std::min<std::size_t>(tuning.receive_memory / receive_octets(tuning), 1 << 20));
  }
  // Serial arithmetic: a total that is older than another would be so far ahead of it.
  static constexpr std::uint32_t kHalf = 0x80000000u;
  static constexpr std::size_t kReleaseBatch = 8;  // as many releases make a message of their own

  Link(PeerId peer, const Tuning& tuning, Transport& transport, OutgoingPool& pool, ReceiveBudget& budget,
       Counters& counters);

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
  // True if it was handed over. followed: nothing goes out before the next push().
  bool push(Outgoing& o, bool followed = false);
  // Replaces the payload of a Send or Write that waits by a copy. False: there is no memory for one.
  bool copy_payload(Outgoing& o);
  // Hands over as much as the path and the credits allow. What it wants to add itself, notes, and finds no memory for,
  // waits for the next one: starved() says so.
  void flush();
  bool starved() const { return starved_; }
  bool nothing_waits() const { return queue_.empty() && reads_.empty() && paced_.empty(); }
  // The transport has something, whose completion shows that the peer lives.
  bool under_way() const { return under_way_ > 0; }
  bool idle() const { return nothing_waits() && !under_way(); }

  // An answer came, so the transport does not own o any more. use_room() follows, if the link goes on.
  void completed(Outgoing& o);
  void use_room() {
    if (!paced_.empty()) flush();
  }
  // What every message carries. False: the peer had no credit for it.
  bool on_received(const wire::Message& m);
  // A Write with immediate used a receive. False: the peer had no credit for it.
  bool on_immediate() { return use_receive(false); }
  // The peer wants us to keep so many credits at most.
  void on_recall(std::uint32_t keep);
  void release(std::uint32_t id, bool at_once);
  // The peer gets no more credits than it was told of, until they are given again. Notes without a credit still come.
  // True if that is new.
  bool hold_credits();
  void give_credits();
  // Somebody else needs receives that this link has borrowed. idle: as ReceiveBudget's.
  void lend(bool idle);
  std::uint32_t window() const { return window_; }
  std::uint32_t borrowed() const { return window_ - kFirstWindow; }
  std::uint32_t used_at() const { return used_at_; }  // ReceiveBudget::tick() of its last message
  bool narrowing() const { return window_ > most_window_; }
  bool asked_back() const { return asked_back_; }
  // It wanted a larger window than the budget had receives for. True once.
  bool take_shortage() { return std::exchange(short_, false); }
  // From now on every release goes out at once.
  void set_peer_closing() { peer_closing_ = urgent_ = true; }

  Links<Link> ups;  // in Machine's list of those that are up
  SentNumbers sent;
  ArrivedNumbers arrived;
  // With ordered_completions: receives that are fetched from buffers of HYBRID, and what came to its end behind them.
  List<Operation, &Operation::ending> ends;
  std::vector<Tag> retracting;                        // RETRACT is out, RETRACTED has not come
  std::uint32_t announced = 0;                        // our receives whose announcements the peer may hold
  std::size_t copied = 0;                             // octets of copies in the queue
  std::size_t pending = 0;                            // requests that end when the peer does
  std::optional<std::uint64_t> data_told, data_seen;  // what was attached last, to what was pushed and to theirs
  Incomplete incomplete;
  std::uint64_t heard_at = 0;
  std::uint64_t pinged_at = 0;        // 0: no ping is out
  std::uint32_t answers_waiting = 0;  // for room or credits, to what the peer has asked

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
  bool use_receive(bool unused);
  void widen();
  void narrow();
  // followed: the next one continues it, and has a credit.
  bool hand_over(Outgoing& o, bool followed);
  bool send(Outgoing& o, bool reserve, bool followed);
  bool solicits(const Outgoing& o) const;
  bool waits_unheard(Tag tag) const;
  bool passes(const Outgoing& o, bool other_data) const;
  void note_passing(const Outgoing& o);
  bool hand_over_first(List<Outgoing, &Outgoing::links>& list);
  void send_in_order();
  bool send_paced(Outgoing& o);
  std::size_t room() const;
  std::size_t write_piece() const;
  Outgoing* first_with_room() const;
  std::size_t write_window() const;
  bool send_piece(Outgoing& o);
  void tell_length_by(Outgoing& notice, Outgoing& o);
  void use_up_recalled();
  void note_stall();
  void push_note();
  void return_credits();

  PeerId peer_;
  const Tuning& tuning_;
  Transport& transport_;
  OutgoingPool& pool_;
  ReceiveBudget& budget_;
  Counters& counters_;
  State state_ = State::unconnected;
  bool peer_closing_ = false, note_queued_ = false, urgent_ = false, stalled_ = false;
  bool holding_ = false;     // credits
  bool short_ = false;       // of receives
  bool starved_ = false;     // of memory
  bool asked_back_ = false;  // RECALL is out, and nothing else has come since
  // paced_: Writes of rendezvous, what belongs to them, and what may not pass them.
  List<Outgoing, &Outgoing::links> queue_, reads_, paced_;
  std::size_t under_way_ = 0;
  std::size_t paced_octets_ = 0;  // of paced Writes that are under way
  std::size_t narrow_left_ = 0;   // octets of paced Writes until the window is wide again
  std::size_t holding_up_ = 0;    // in paced_: what nothing passes
  std::uint64_t pushed_ = 0;
  // Totals modulo 2^32, but windows and left_then_.
  std::uint32_t granted_ = kFirstWindow;      // what we may send
  std::uint32_t used_ = 0;                    // of it
  std::uint32_t left_then_ = kFirstWindow;    // credits that were left when the last ones came
  std::uint32_t window_ = kFirstWindow;       // receives for the peer
  std::uint32_t most_window_;                 // it does not grow beyond this, and shrinks to it
  std::uint32_t consumed_ = 0;                // receives that were used
  std::uint32_t told_ = kFirstWindow;         // grant() when the peer was told last
  std::optional<std::uint32_t> recalled_to_;  // the peer wants us to use up the credits beyond so many
  std::optional<std::uint32_t> note_;         // told_ before a note that the peer may not have seen yet
  std::uint32_t used_at_ = 0;
  std::uint32_t most_untold_ = 0;  // since the window was looked at last
  std::uint64_t floor_told_ = 0;
  std::vector<std::uint32_t> releases_;
};

}  // namespace ewarp::channel
