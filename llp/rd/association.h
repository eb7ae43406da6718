// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One association of the reliable datagram service: the stream between a local and a remote queue pair. Exactly once
// and in order in each of two lanes, whatever the network does; errors are told without ending it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "llp/rd/ack_due.h"
#include "llp/rd/barrier.h"
#include "llp/rd/congestion.h"
#include "llp/rd/header.h"
#include "llp/rd/lane.h"
#include "llp/rd/timer.h"
#include "llp/rd/types.h"
#include "llp/rd/upper.h"

namespace ewarp::llp::rd {

struct Counters {
  std::uint64_t sent = 0, retransmitted = 0, timeouts = 0, losses = 0;
  std::uint64_t received = 0, duplicates = 0, out_of_order = 0, not_held = 0;
  std::uint64_t rnr_sent = 0, rnr_received = 0, reports_sent = 0, reports_received = 0, probes = 0;
  std::uint64_t opened = 0, accepted = 0, closed = 0, unreachable = 0, resets_sent = 0, resets_received = 0;
  std::uint64_t violations = 0;  // of `closed`: the peer broke the protocol
  std::uint64_t challenges = 0, dropped_runt = 0, dropped_version = 0, dropped_length = 0, dropped_crc = 0;
  std::uint64_t dropped_qp = 0, dropped_tag = 0, dropped_full = 0;
};

// A message of the peer's that holds a receive, and how long nothing has continued it. Counted in steps: a stop of this
// process is one step, and not the peer's fault.
struct OpenMessage {
  static constexpr unsigned kSteps = 6;
  Time since = kNever;     // beginning of the step; kNever: no message is open
  std::uint32_t next = 0;  // the PSN that would continue it
  unsigned steps = 0;      // that have passed
};

// What exists only while something is in flight in either direction, or a message of the peer's is open.
struct Flight {
  std::array<SendLane, kLaneCount> tx;
  std::array<ReceiveLane, kLaneCount> rx;
  std::uint64_t order = 0;    // transmissions so far
  std::uint64_t recover = 0;  // losses of what was sent up to here have been answered
  Time progress_at = 0;
  Time ack_at = kNever;
  Time pace_at = kNever;
  Time newest_at = 0;            // arrival of the newest segment
  Time frozen_until = 0;         // RNR; 0: not frozen
  std::uint32_t unanswered = 0;  // segments since the last acknowledgement
  std::uint32_t refusals = 0;    // RNR in a row
  std::uint32_t report_psn = 0;  // of the report that Association::barrier_ waits for, in our RSP lane
  OpenMessage open_message;
};

// What all associations of a table share.
struct Shared {
  Shared(const Config& c, Upper& u, Wire& w) : config(c), upper(u), wire(w) {}
  const Config config;
  Upper& upper;
  Wire& wire;
  std::size_t held = 0;       // octets held out of order
  std::size_t embryonic = 0;  // associations in that state
  std::vector<std::unique_ptr<Flight>> spare;
  Counters counters;
};

class Table;
class Deadlines;

// Threading: belongs to whoever holds the engine, as the Table does. The Table creates, finds, wakes and removes; the
// functions here that take the time are the Table's to call, and the owner's through it.
class Association {
 public:
  // closed: exists only between two openings. open_sent: our OPEN is out. embryonic: the peer's OPEN was answered,
  // nothing proves yet that it was meant. established: data flows. close_sent: idle, and the peer is being told.
  enum class State : std::uint8_t { closed, open_sent, embryonic, established, close_sent };

  static constexpr bool allowed(State from, State to) {
    switch (to) {
      case State::closed:
        return from != State::closed;
      case State::open_sent:  // from embryonic: the peer was to speak first, and did not
        return from == State::closed || from == State::embryonic;
      case State::embryonic:
        return from == State::closed;
      case State::established:
        return from == State::open_sent || from == State::embryonic || from == State::close_sent;
      case State::close_sent:
        return from == State::established;
    }
    return false;
  }

  Association(Shared& shared, const Key& key, std::uint16_t port);
  ~Association();
  Association(const Association&) = delete;

  State state() const { return state_; }
  const Key& key() const { return key_; }
  std::uint32_t own_tag() const { return own_tag_; }
  std::uint32_t peer_tag() const { return peer_tag_; }
  // Largest DDP segment of new messages, and octets of an immediate with it.
  std::size_t mulpdu() const { return max_seg_ - kOverhead; }
  std::uint16_t ord() const { return ord_; }  // Reads and atomics of ours at once
  std::uint16_t ird() const { return shared_.config.ird; }
  std::uint16_t options() const { return static_cast<std::uint16_t>(options_ << kOptionShift); }
  // Path MTU news: an upper bound for the UDP payload of segments yet to be numbered.
  void limit_segment(std::uint16_t max_udp_payload);
  // Its datagrams carry a CRC even if Config::without_crc wishes otherwise. For Upper::opening().
  void demand_crc() { crc_demanded_ = true; }
  // Nothing is kept beyond the idle state.
  bool slim() const { return flight_ == nullptr; }
  const RoundTrip& round_trip() const { return round_trip_; }
  const Congestion& congestion() const { return congestion_; }

  void* user = nullptr;  // the upper layer's
  // What the upper layer holds against the peer, since the opening. Returns how many there are now.
  std::uint8_t strike() { return strikes_ < UINT8_MAX ? ++strikes_ : strikes_; }
  std::uint8_t strikes() const { return strikes_; }

 private:
  friend class Table;
  friend class Deadlines;
  struct Identity {  // drawn by the Table
    std::uint32_t tag;
    std::array<std::uint32_t, kLaneCount> isn;
  };

  // Opening and closing (open.cc).
  void begin(const Identity& identity);
  void open(Time now, const Identity& identity);
  void accept(Time now, const Open& open, const Identity& identity);
  void adopt(const Open& open);
  void establish(Time now);
  void send_open(Time now);
  void send_openack();
  void send_close(Time now, bool acknowledgement);
  void on_openack(Time now, const Prefix& prefix, const Open& open);
  void on_close(Time now, const Prefix& prefix, const Close& close);
  void on_reset(ResetReason reason);
  void send_reset(ResetReason reason);
  void fail(const Ended& how, ResetReason tell);
  void end(const Ended& how);
  void enter(State next);
  bool quiet() const;

  // Receiving (receive.cc).
  void receive(Time now, std::uint16_t port, const Datagram& datagram, bool ce);
  bool respond(Time now, bool may_wait = false);
  bool may_answer_later() const;
  void on_standing(Time now, const Prefix& prefix, const Standing& standing, const Ack* ack);
  bool on_lane_ack(Lane lane, std::uint32_t ack, SackView sack, Progress& progress);
  void on_progress(Time now, const Progress& progress, std::uint32_t in_flight, const Ack* ack);
  void on_losses(std::uint64_t newest, std::uint32_t in_flight);
  void on_refusal(Time now, std::uint8_t code, std::uint32_t ack);
  void on_segment(Time now, Incoming in, std::uint8_t flags, bool ce);
  Take take(const Incoming& in);
  void on_report(const Incoming& in);
  bool drain(Lane lane);
  void hold(Incoming in);
  void let_go(Lane lane, std::uint32_t psn);
  void pass_barrier(Time now);
  void resume(Time now);
  bool blocked(Lane lane) const { return lane == Lane::req && barrier_.blocks(); }

  // Sending and timers (transmit.cc).
  void wake(Time now);
  void pump(Time now);
  bool may_send(Lane lane);
  bool room(Lane lane) const;
  bool send_next(Time now, Lane lane);
  bool transmit(Time now, Lane lane, std::size_t i, std::uint8_t flags);
  void send_ack(Time now, std::uint8_t flags = 0, std::uint8_t aux = 0);
  Standing standing(std::uint32_t psn);
  std::uint8_t acknowledging_flags();
  Time due() const;
  Time due_when_nothing_is_sent() const;
  bool stalled() const;
  void expire(Time now);
  void on_timeout(Time now);
  void on_silence(Time now);
  bool unacknowledged() const;
  void watch_open_message(Time now);
  Time open_message_due() const;
  bool open_message_expired(Time now);
  void trim();

  Flight& flight();
  std::uint32_t oldest(Lane lane) const;
  std::uint32_t in_flight() const;
  std::uint16_t wishes() const;  // options
  Prefix prefix(Type type, std::uint8_t flags, std::uint8_t aux = 0) const;
  Address address() const { return {key_.ip, port_, key_.local}; }
  void put(std::span<const std::byte> head, std::span<const Extent> payload = {}, bool again = false,
           const MessageId& message = {});

  static constexpr unsigned kOptionShift = 13;
  static_assert((option::kCredits | option::kAtomics | option::kNoCrc) >> kOptionShift == 7);

  Shared& shared_;
  Key key_;
  std::uint16_t port_;
  State state_ = State::closed;
  Barrier barrier_;
  AckDue ack_due_;
  bool adopted_ : 1 = false;  // the peer's tag and PSNs are known
  bool turn_ : 1 = false;     // lanes take turns
  bool late_ : 1 = false;     // in Table::late_
  bool crc_demanded_ : 1 = false;
  std::uint8_t options_ : 3 = 0;  // those of wishes(), from kOptionShift on
  std::uint8_t tries_ = 0;        // of OPEN, CLOSE; timeouts or unanswered probes in a row
  std::uint8_t probes_ = 0;       // for credits, in a row
  std::uint8_t strikes_ = 0;
  std::uint8_t ord_ = 0;
  std::uint16_t path_seg_ = 0;  // largest UDP payload, as far as this side alone knows
  std::uint16_t max_seg_ = 0;   // and as both ends have it
  std::uint32_t own_tag_ = 0, peer_tag_ = 0;
  std::array<std::uint32_t, kLaneCount> isn_{};
  std::array<std::uint32_t, kLaneCount> tx_next_{}, rx_next_{};
  std::array<std::uint32_t, kLaneCount> tx_edge_{};  // first PSN that the peer's window does not allow
  std::uint32_t peer_limit_ = 0, granted_ = 0;       // queue-0 MSNs
  Congestion congestion_;
  RoundTrip round_trip_;
  union {
    Time last_rx_ = 0;
    std::uint64_t cookie_;  // in open_sent, where nothing has been received
  };
  Time last_tx_ = 0;
  Time timer_from_ = 0;
  std::unique_ptr<Flight> flight_;

  // The Table's: where it stands in the slab, the heap and the chains of the index.
  struct Place {
    Time deadline = kNever;
    std::uint32_t self = 0, in_heap = 0;
    std::uint32_t next_by_tag = 0, next_by_key = 0;
  };
  Place place_;
};

}  // namespace ewarp::llp::rd
