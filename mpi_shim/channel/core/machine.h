// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The protocols of the channel, without sockets, threads or clocks: what the application asks comes in through the
// calls, what the peers do through TransportEvents, and everything that follows goes to the Transport.
//
// Threading: none. Who calls sees to it that one call is made at a time.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "mpi_shim/channel/core/counters.h"
#include "mpi_shim/channel/core/hybrid_buffers.h"
#include "mpi_shim/channel/core/link.h"
#include "mpi_shim/channel/core/matching.h"
#include "mpi_shim/channel/core/operation.h"
#include "mpi_shim/channel/core/receive_budget.h"
#include "mpi_shim/channel/core/transport.h"

namespace ewarp::channel {

// A message that was taken out of the queue by a matched probe; to be given to receive_matched() or discard().
struct Stored;

class Machine final : public TransportEvents {
 public:
  Machine(const Tuning& tuning, Transport& transport);
  ~Machine() override;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Peers have the numbers 0, 1, ...; self: messages to it come back.
  PeerId add_peer(bool self = false);

  // Each gives the name of a request, or an empty one if there are too many. A buffer belongs to the channel until the
  // request is done.
  // synchronous: done only when the receiver has matched it.
  // With options.inject also if messages wait as copies already and this one would exceed copy_limit.
  // copy: what copy_ahead() gave for this message.
  Request send(PeerId peer, Tag tag, Octets data, const SendOptions& options,
               const std::optional<HybridBuffers::Buffer>& copy = {});
  Request send(PeerId peer, Tag tag, Octets data, bool synchronous = false) {
    return send(peer, tag, data, SendOptions{.synchronous = synchronous});
  }
  // Before the last look whether a medium message is announced (Small and Yuan, figure 6, line 8): copies it, so that
  // it is done at once whichever protocol it takes. To be given to send(); nothing if send() would not use it.
  std::optional<HybridBuffers::Buffer> copy_ahead(PeerId peer, Octets data, const SendOptions& options);
  // waits: the application will wait for it at once, so that nothing is to be hidden.
  Request receive(PeerId source, Tag tag, Tag ignore, MutableOctets buffer, const ReceiveOptions& options = {},
                  bool waits = false);
  // An empty request: there are too many, and the message is the caller's as before.
  Request receive_matched(std::unique_ptr<Stored>& message, MutableOctets buffer, const Report& report = {});
  // As if it had been received by a buffer of no octets.
  void discard(std::unique_ptr<Stored> message);
  Request put(PeerId peer, Octets source, wire::Remote target, const SendOptions& options = {});
  Request get(PeerId peer, MutableOctets target, wire::Remote source, const Report& report = {});

  // A question of eager_threshold octets at most for the peer's answerer; its answer goes to `answer`, and the status
  // tells its length. Without an answerer it is empty.
  Request call(PeerId peer, Octets question, MutableOctets answer, const Report& report = {});
  void answer_with(Answerer* answerer) { answerer_ = answerer; }
  // Who hears of puts of peers that have data attached.
  void tell_puts(const Report& report) { puts_ = report; }

  // The status of a finished request, whose name is free after that. Nothing if it is not done.
  std::optional<Status> test(Request request);
  bool done(Request request) const;
  // It exists and is not done.
  bool pending_request(Request request) const;
  // A receive for which no message has come ends with Error::cancelled, now or after an exchange with the peer; others
  // go on. Either way it is to be tested for.
  void cancel(Request request);
  // The oldest receive with this report that no message has come for; an empty request if there is none.
  Request find_posted(const Listener& listener, const void* context) const;

  // The first message that has come and that such a receive would get.
  std::optional<Status> probe(PeerId source, Tag tag, Tag ignore);
  // ... and takes it out of the queue.
  std::unique_ptr<Stored> matched_probe(PeerId source, Tag tag, Tag ignore, Status* status);

  // Looks after peers that are silent. To be called now and then while requests are pending.
  void tick();
  // Asks the peers for the buffers of HYBRID. The application is about to leave.
  void begin_close();
  // Ends every request that is not done; only after all peers are down.
  void abandon();
  // Nothing is left that a peer needs of us.
  bool idle() const;

  const Counters& counters() const { return counters_; }
  Counters& counters() { return counters_; }
  const Tuning& tuning() const { return tuning_; }
  Link::State peer_state(PeerId peer) const { return links_[peer]->state(); }
  std::size_t unexpected() const { return unexpected_.size(); }
  // Requests that were not tested for, and are not done.
  std::size_t pending() const { return pending_; }
  // What has to be looked at although the application computes. Where the rest is the adapter's that is nothing, but
  // one in software wants to know that nobody polls: arming tells it.
  Wake wake_for() const {
    if (stalled() || releasing_ > 0) return Wake::everything;
    return large_ > 0 ? Wake::control : Wake::nothing;
  }
  // The receive that the next message with this tag will get is known.
  bool announced(PeerId peer, Tag tag) { return links_[peer]->sent.peek(key_of(tag)) != nullptr; }
  // Something could not be handed over to the transport.
  bool stalled() const { return pool_.stalled > 0; }

  void on_peer_up(PeerId peer) override;
  void on_peer_down(PeerId peer) override;
  void on_writable(PeerId peer) override;
  void on_received(PeerId peer, Octets octets) override;
  void on_immediate(PeerId peer, std::uint32_t immediate, std::size_t written) override;
  void on_complete(Cookie cookie, bool ok) override;

 private:
  struct WaitingKey {
    static Envelope key(const Operation& op) { return {op.peer, op.key}; }
    static std::size_t hash(const Envelope& e) { return hash_of(e); }
  };
  using Waiting = HashedQueue<Operation, &Operation::waiting, WaitingKey>;
  // A message that is being matched: from the wire, from the queue, or from ourselves.
  struct Incoming {
    PeerId source;
    const wire::Message& message;
    Octets payload;              // EAGER: what has come of it; SENDER_READY: the first octets
    Operation* own = nullptr;    // a send to ourselves
    Incomplete* rest = nullptr;  // EAGER: what has not
  };

  // machine.cc: requests
  // What tags are numbered, announced and hashed by.
  Tag key_of(Tag tag) const { return tag & ~tuning_.ignored_bits; }
  Operation* start(Operation::Kind kind, PeerId peer, MutableOctets buffer, bool large = false);
  void forget(Request request);
  void finish(Operation& op, Error error);
  void settle(Operation& op, Error error);
  bool leave_parent(Operation& parent);
  void end_posted(Operation& op, Error error);
  void violation(PeerId peer, const char* what);
  bool expose(Operation& op, Transport::Reach reach);
  Outgoing& push_pieces(PeerId peer, Outgoing::What what, MutableOctets memory, const Exposed* exposed,
                        wire::Remote remote, bool paced = false, std::optional<Tag> unheard = {});
  void queue_control(PeerId peer, wire::Kind kind, Tag tag, std::uint64_t number);
  bool may_inject(PeerId peer, std::size_t octets) const;
  bool may_answer(PeerId peer) const;
  // By HYBRID, unless it is announced.
  bool goes_hybrid(std::size_t length, const SendOptions& options) const;
  void choose_protocol(Operation& op, const SendOptions& options, std::optional<HybridBuffers::Buffer>& copied);
  void attach(wire::Message& m, const Operation& op);
  void begin_send(Operation& op, Tag tag, const SendOptions& options, std::optional<HybridBuffers::Buffer>& copied);
  void send_to_self(Operation& op, const SendOptions& options);
  Request one_sided(PeerId peer, MutableOctets memory, wire::Remote remote, Outgoing::What what,
                    const SendOptions& options);
  void begin_one_sided(Operation& op, wire::Remote remote, Outgoing::What what, const SendOptions& options);
  void push_one_sided(Operation& op, wire::Remote remote, Outgoing::What what, bool inject);
  std::size_t most_requests(std::size_t octets) const;
  Outgoing* take_confirm(Operation& op);
  Outgoing* take_told(const Operation& op);

  // machine_receive.cc: matching
  void arrived(const Incoming& in);
  void take_posted(Operation& op, const Incoming& in);
  void deliver(Operation& op, const Incoming& in);
  void deliver_stored(Operation& op, const Stored& message);
  void deliver_taken(Operation& op, const Stored& message);
  void store(const Incoming& in);
  std::unique_ptr<Stored> take_stored(Arrival& a);
  bool waits_for(PeerId peer) const;
  void wait_for(PeerId peer);
  void look_at_credits();
  Operation* carve(Operation& op, PeerId source, std::size_t size);
  void post_multi(Operation& op);

  // completion_order.cc
  void end(Operation& op, Error error);
  void tell_ends(Link& link, bool all);

  // calls.cc
  void ask(Operation& op, Octets question);
  void on_call(PeerId peer, const wire::Message& m, Octets question);
  void on_answer(PeerId peer, const wire::Message& m, Octets answer);
  Octets answer_to(PeerId peer, Octets question);
  void answered(Operation& op, Octets answer);
  void hear_of_put(PeerId peer, std::size_t size, std::uint64_t data);
  void queue_small(PeerId peer, wire::Kind kind, std::uint32_t id, Octets payload);

  // machine_peers.cc: what comes in, cancelling, peers that end
  // Why the peer's next message cannot be this one; null if it can.
  const char* misplaced(const Link& link, const wire::Message& m, Octets payload) const;
  // Null if all of the message has come.
  Incomplete* note_rest(PeerId peer, const wire::Message& m, Octets payload);
  void dispatch(PeerId peer, const wire::Message& m, Octets payload);
  void on_releases(PeerId peer, const wire::Message& m);
  void on_retract(PeerId peer, Tag key);
  void on_retracted(PeerId peer, Tag key);
  void forget_messages_of(PeerId peer);

  // protocol_eager.cc
  void reserve_message(std::size_t octets);
  void push_message(Outgoing& first, Octets payload);
  std::size_t waiting_octets() const;
  bool copy_waiting();
  void lose_message(PeerId peer);
  Outgoing* last_in_place() const;
  void send_eager(Operation& op, bool inject);
  void deliver_octets(Operation& op, Octets payload, Incomplete* rest);
  void on_more(PeerId peer, Octets payload);
  void came_in_full(PeerId peer, const Incomplete& message);

  // protocol_hybrid.cc
  std::optional<HybridBuffers::Buffer> copy(PeerId peer, Octets data);
  void send_hybrid(Operation& op, const HybridBuffers::Buffer& copy, std::uint8_t declined);

  // protocol_send_rndv.cc
  // declined: the flag, if the receiver's announcement is passed over.
  void send_ready(Operation& op, std::uint8_t declined);
  void fetch(Operation& op, const wire::Message& m);
  void fetched(Operation& op);
  void store_head(Operation& op, Octets head);
  void answer(Operation& op, const wire::Message& m, Octets head);
  void on_sender_released(PeerId peer, std::uint32_t id);

  // protocol_recv_rndv.cc
  void announce(Operation& op, bool waits);
  bool may_announce(const Operation& op, bool waits, std::uint64_t* number);
  void queue_receiver_ready(const Operation& op, std::uint64_t number, std::uint8_t flags, std::uint8_t extras);
  // copy: of the message; it is done at once then.
  void write_into(Operation& op, const Announcement& a, const std::optional<HybridBuffers::Buffer>& copy = {});
  void on_receiver_ready(PeerId peer, const wire::Message& m);
  void on_written(PeerId peer, std::uint32_t id, std::size_t size, std::optional<Tag> tag,
                  std::optional<std::uint64_t> data);
  void announcement_settled(Operation& op, bool used);
  bool candidate_would_have_been_used(const Operation& op, const wire::Message& m) const;

  Answerer* answerer_ = nullptr;
  std::vector<std::byte> answer_;
  Report puts_;
  const Tuning tuning_;
  Transport& transport_;
  Counters counters_;
  OutgoingPool pool_;
  ReceiveBudget budget_;
  std::vector<Outgoing*> pieces_;  // of the message that was pushed last
  Operations operations_;
  PostedReceives posted_;
  Unexpected unexpected_;
  Waiting waiting_;
  HybridBuffers hybrid_buffers_;
  using Up = List<Link, &Link::ups>;
  std::vector<std::unique_ptr<Link>> links_;
  Up up_;  // of these, those that are up
  std::vector<bool> self_;
  std::size_t stored_ = 0;        // octets of messages in unexpected_, of peers
  bool holding_credits_ = false;  // some link does
  // Requests: not done; large ones of them; those with a Read whose end the sender waits for.
  std::size_t pending_ = 0, large_ = 0, releasing_ = 0;
  std::uint64_t round_trip_ns_ = 20'000;  // the shortest Read so far
};

struct Stored : Arrival {
  wire::Message message;
  std::unique_ptr<std::byte[]> payload;  // EAGER
  std::size_t missing = 0;               // EAGER: octets that are to come
  Incomplete* incomplete = nullptr;      // EAGER: who puts them here
  Operation* own = nullptr;              // a send to ourselves, whose buffer is still the user's

  Stored() = default;
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;
  ~Stored() {
    if (incomplete != nullptr) incomplete->stored = nullptr;
  }

  // Octets of memory that a peer made us spend on it.
  std::size_t cost() const { return own != nullptr ? 0 : sizeof(Stored) + (payload ? size : 0); }
};

}  // namespace ewarp::channel
