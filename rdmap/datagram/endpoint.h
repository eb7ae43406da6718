// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// RDMAP on reliable datagrams: one queue pair's end of all its associations. Requests become segments, segments become
// placements and completions, errors are told without ending an association (docs/design/rd.md). No sockets, no clock.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "llp/rd/association.h"
#include "llp/ring.h"
#include "rdmap/segment.h"

namespace ewarp::rdmap {

// Whom a request goes to, or a message came from: address, local and remote QPN, Q_Key.
using Peer = llp::rd::Key;

// What RDMAP on datagrams asks of a queue pair. Called from inside the functions of llp::rd::Table, so nothing here may
// call back into it, const functions excepted.
class DatagramConsumer : public MemoryAccess {
 public:
  // A peer wants an association: state of the queue pair, Q_Key.
  virtual llp::rd::Admission admit(const Peer& peer) = 0;

  // The oldest request for this peer that was not started yet; null if there is none, and in every state of the queue
  // pair in which nothing may be sent. Asked several times for each segment, so it should be cheap.
  virtual SendRequest* next_send(const Peer& peer) = 0;
  virtual void send_started(const Peer& peer) = 0;
  // Once for each request that was started and not flushed by abandon(); for one peer in the order in which they were
  // started, among peers in any. A status other than success says nothing about other requests, and nothing ends with
  // it. connection_lost: the peer cannot be reached or refuses; no_receive: it had none for too long; remote_operation:
  // the association broke off, delivery is unknown; flushed: it was ended by this side.
  virtual void send_done(SendRequest& request, Status status) = 0;
  // Octets [offset, offset + n) of the request's memory: source of a Send or Write (asked at each transmission), sink
  // of a Read or of what an atomic returns.
  virtual Status request_memory(const SendRequest& request, std::uint64_t offset, std::uint64_t n, ExtentList& out) = 0;

  // Names a receive that was taken, until receive_done(). Several may be taken at once, one for each association.
  using Receive = std::uint32_t;
  // Receives that are posted and not taken; not more than 2^31.
  virtual std::uint32_t receives() const = 0;
  // Takes the next one; nothing if none is posted.
  virtual std::optional<Receive> take_receive() = 0;
  virtual std::uint64_t receive_capacity(Receive receive) = 0;  // octets
  virtual Status receive_memory(Receive receive, std::uint64_t offset, std::uint64_t n, ExtentList& out) = 0;
  // flushed: the message was broken off by its sender or with its association, or its invalidation failed; the buffer
  // holds nothing of use.
  virtual void receive_done(Receive receive, const Peer& from, const Received& received) = 0;

 protected:
  ~DatagramConsumer() = default;
};

struct DatagramCounters {
  std::uint64_t tx_messages = 0, rx_messages = 0;
  std::uint64_t tx_sends = 0, rx_sends = 0, tx_writes = 0, rx_write_segments = 0, tx_reads = 0, rx_reads = 0;
  std::uint64_t tx_atomics = 0, rx_atomics = 0;
  std::uint64_t placed_ahead = 0;  // tagged segments, before their turn
  std::uint64_t reports_sent = 0, reports_received = 0, violations = 0;
  std::uint64_t wrong_stags = 0;  // requests that named memory which the peer was never given
};

// The owner of the Table forwards each call of llp::rd::Upper by a.key().local_qpn. After posting requests it calls
// Table::wake(now, peer, port), without `user`: Association::user is this class's. After posting receives:
//   while (Association* a = endpoint.next_refused()) table.receives_posted(now, *a);
// When the queue pair goes to RESET or ERR or is destroyed: from then on next_send() gives nothing and admit() refuses;
// abandon(), Table::reset_qp(), and the consumer flushes. Without abandon(), what was begun ends with
// send_done(flushed). Where the queue pair lives on, an association that
// it has no more use for may be ended by Table::abort() alone.
//
// Threading: belongs to whoever holds the engine. Cost: 40 octets for an idle association; what is in progress is kept
// in objects that are used again, so that a message allocates nothing.
class DatagramEndpoint final : public llp::rd::Upper {
 public:
  // An association in which the peer named so many different STags that open nothing, or not for it, ends. A key that
  // was taken back while requests were under way counts once, and few are; a guess needs many millions of tries.
  static constexpr unsigned kMostWrongStags = 8;

  explicit DatagramEndpoint(DatagramConsumer& consumer);
  ~DatagramEndpoint();
  DatagramEndpoint(const DatagramEndpoint&) = delete;

  // An association that refused a message for lack of a receive, while one is posted; each is returned once, the one
  // that has waited longest first. Null: none, or no receive.
  llp::rd::Association* next_refused();
  bool has_refused() const { return !refused_.empty(); }  // whether a receive is posted or not
  // The consumer flushes all its requests and receives: nothing of what is in progress is told to it any more. The
  // associations must be ended before anything new is posted.
  void abandon();
  // Associations in which something is in progress.
  std::size_t active() const { return active_.size(); }

  DatagramCounters counters;

  // llp::rd::Upper
  llp::rd::Admission admit(const llp::rd::Key& key) override;
  void opening(llp::rd::Association& a) override;
  void established(llp::rd::Association& a) override;
  void ended(llp::rd::Association& a, const llp::rd::Ended& how) override;
  bool peek(llp::rd::Association& a, llp::rd::Lane lane, std::optional<std::uint32_t>* first_msn) override;
  void take(llp::rd::Association& a, llp::rd::Lane lane, std::uint32_t psn, std::size_t mulpdu,
            llp::rd::Outgoing& out) override;
  int memory(llp::rd::Association& a, llp::rd::Lane lane, const llp::rd::Outgoing& segment,
             std::span<llp::Extent> out) override;
  void acknowledged(llp::rd::Association& a, llp::rd::Lane lane, std::uint64_t message) override;
  void reported(llp::rd::Association& a, std::uint64_t message, const llp::rd::Incoming& report) override;
  bool quiet(const llp::rd::Association& a) const override;
  bool awaits_rest(const llp::rd::Association& a) const override;
  llp::rd::Take deliver(llp::rd::Association& a, const llp::rd::Incoming& in) override;
  bool place(llp::rd::Association& a, const llp::rd::Incoming& in) override;
  std::uint32_t message_limit(const llp::rd::Association& a) const override;

 private:
  struct Stream;        // the idle state of an association
  struct Activity;      // and what more there is while something is in progress
  struct Awaited;       // a Read or atomic whose answer is to come
  struct PeersRequest;  // one of the peer's, or a report, on its way to an answer
  using Association = llp::rd::Association;
  using Incoming = llp::rd::Incoming;
  using Outgoing = llp::rd::Outgoing;
  using Take = llp::rd::Take;

  // What all parts share (endpoint.cc).
  Stream& new_stream();
  Activity& activate(Stream& s);
  void settle(Stream& s);
  void complete(Activity& act);
  void break_off(const Association& a, Activity& act, const llp::rd::Ended& how);
  void forget_refusal(Activity& act, const Association& a);

  // Requests of ours (transmit.cc).
  SendRequest* startable(Association& a, Stream& s);
  Status check_request(const Association& a, const SendRequest& r);
  void take_whole(Stream& s, Activity& act, const SendRequest& request, Outgoing& out);
  void take_request(const Association& a, Stream& s, std::size_t mulpdu, Outgoing& out);
  void take_closing(Stream& s, Activity& act, Outgoing& out);
  void take_payload(Stream& s, Activity& act, std::size_t mulpdu, Outgoing& out);

  // Answers to requests of the peer (respond.cc).
  void take_answer(Stream& s, std::size_t mulpdu, Outgoing& out);
  void answer_read(Stream& s, PeersRequest& q, std::size_t mulpdu, Outgoing& out);
  void answer_atomic(Stream& s, PeersRequest& q, Outgoing& out);
  void answer_report(Stream& s, std::uint32_t psn, Octets message, Outgoing& out);
  int answer_memory(Activity& act, const Outgoing& segment, std::span<llp::Extent> out);

  // Requests of the peer (receive.cc).
  Take deliver_request(Association& a, Stream& s, const Incoming& in);
  Take deliver_write(Association& a, Stream& s, Activity& act, const Incoming& in);
  Take deliver_send(Association& a, Stream& s, Activity& act, const Incoming& in);
  Take deliver_read(Association& a, Stream& s, Activity& act, const Incoming& in);
  Take deliver_atomic(Association& a, Stream& s, Activity& act, const Incoming& in);
  bool place_write(Association& a, const Incoming& in);
  std::optional<Fault> place_send(Activity& act, Octets payload, Status* status);
  Take advance_send(Stream& s, Activity& act);
  Take finish_send(Association& a, Stream& s, Activity& act, const Incoming& in);
  bool may_hold(const Association& a) const;
  void hold_receive(const Association& a, Activity& act);
  void let_go_receive(const Association& a, Activity& act);
  bool names_nothing(std::uint32_t stag, std::uint64_t to, std::uint64_t n, RemoteRight right);
  bool strike(Association& a, std::uint32_t stag);
  Take refuse(const Association& a, Stream& s, Activity& act, const Fault& fault, const Incoming& in,
              const ReadRequest* read = nullptr);
  void report(Activity& act, std::uint32_t psn, const Terminate& message);
  void end_receive(const Association& a, Activity& act, const Received& received);

  // Answers to ours (complete.cc).
  Take deliver_response(Stream& s, const Incoming& in);
  Take deliver_read_response(Activity& act, const Incoming& in);
  Take deliver_atomic_response(Activity& act, const Incoming& in);
  void give_up(Activity& act, Awaited& awaited);
  void answered(Activity& act);
  bool place_response(Activity& act, const Incoming& in);
  void cut_short(const Stream& s, Activity& act);

  // Receives that open messages of several segments have. Sources that fall on the same entry share a limit; which ones
  // do, no peer can know.
  struct OpenReceives {
    static constexpr std::size_t kEntries = 256;
    std::size_t slot(const Peer& peer) const;
    std::array<std::uint32_t, kEntries> by_source{};
    std::size_t total = 0;
  };

  DatagramConsumer& consumer_;
  OpenReceives open_;
  std::vector<Activity*> active_;
  std::vector<std::unique_ptr<Activity>> spare_;
  std::vector<std::unique_ptr<Stream[]>> blocks_;
  Stream* free_ = nullptr;
  std::uint64_t next_name_ = 1;  // of messages: not used again in an association while segments of it are under way
  llp::Ring<Association*> refused_;
  const Association* wrong_of_ = nullptr;  // the one that named a wrong STag last, and which
  std::uint32_t wrong_stag_ = 0;
  // Reused, they are large.
  Segment segment_;
  ExtentList pieces_;
};

}  // namespace ewarp::rdmap
