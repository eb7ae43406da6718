// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Gravel's protocols without sockets, threads or clocks: the calls of the application come in, and the ends of
// transfers and of peers; entries and transfers go to the Carrier. What peers have entered is looked for in memory.
//
// No call waits. Error::full says that a ledger or the path is full: the caller makes progress and asks again.
//
// Threading: none. Who calls sees to it that one call is made at a time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "mpi_shim/gravel/core/arrivals.h"
#include "mpi_shim/gravel/core/carrier.h"
#include "mpi_shim/gravel/core/entry.h"
#include "mpi_shim/gravel/core/ledger.h"
#include "mpi_shim/gravel/core/requests.h"

namespace ewarp::gravel {

class Machine {
 public:
  // Under way for one request. Who begins more makes progress first, and notices that the peer has ended.
  static constexpr std::uint32_t kMostTransfers = 64;

  // boards: board::kOctets for each process, all 0 at first, which the peers write.
  Machine(Proc self, int procs, const std::byte* boards, Carrier& carrier);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // --- consumer ---
  Error post_receive_buffer(Proc producer, const Local& buffer, int tag, RequestId* request);
  // Error::full: none has come. *from: kAnySource or who, then who. *tag: kAnyTag or which, then which. Error::peer: it
  // will not come, as *from has ended; for kAnySource a peer that was lost is named once. Error::state: nor from this
  // process itself, which has posted none.
  Error take_send_request(Proc* from, int* tag, std::uint64_t* size);
  Error take_send_buffer(Proc* from, int* tag, std::uint64_t* size, RequestId* request);
  Error get(RequestId request, const Local& target, std::uint64_t offset);

  // --- producer ---
  Error post_send_request(Proc consumer, std::uint64_t size, int tag, RequestId* request);
  Error post_send_buffer(Proc consumer, const Local& buffer, int tag, RequestId* request);
  Error take_receive_buffer(Proc* from, int* tag, std::uint64_t* size, RequestId* request);
  Error put(RequestId request, const Local& source, std::uint64_t offset);
  Error send_fin(RequestId request);

  // --- both ---
  // Error::full: it is not done. Otherwise how it ended; its name is free then, unless that is Error::state (a put
  // without a FIN) or Error::request (there is none). *used: the slot of its own buffer, if it has one.
  Error test(RequestId request, std::optional<std::uint32_t>* used);
  // kAnySource if there is no such request.
  Proc proc_of(RequestId request);

  // --- what happens ---
  // Takes what this peer has entered. Error::peer: what it entered is not Gravel's; the peer is lost.
  Error look(Proc peer);
  // Looks at some peers, each time at others.
  void look_around();
  // A transfer ended. how: Error::none, or why it was not carried out.
  void on_moved(RequestId request, Error how);
  // It ended in order, or not. Everything that came from it before has been placed.
  void on_gone(Proc peer, bool in_order);

  enum class PeerState : std::uint8_t {
    present,
    left,  // it has ended in order
    lost,
  };
  PeerState peer_state(Proc peer) const { return peers_[index(peer)].state; }
  // Requests that were not found done.
  std::size_t requests() const { return requests_.in_use(); }
  int procs() const { return static_cast<int>(peers_.size()); }

 private:
  struct Peer {
    PeerState state = PeerState::present;
    bool reported = false;  // lost: a wait for anybody has said so
    std::array<LedgerWriter, kLedgers.size()> out;
    std::array<LedgerReader, kLedgers.size()> in;
    Arrivals arrivals;
  };

  static std::size_t index(Proc proc) { return static_cast<std::size_t>(proc); }
  Peer& peer(Proc proc) { return peers_[index(proc)]; }
  const std::byte* board(Proc proc) const { return boards_ + index(proc) * board::kOctets; }
  Error check_post(Proc proc, int tag) const;
  Error check_take(Proc proc, int tag) const;

  // machine.cc
  Error enter(Proc to, Ledger ledger, const Entry& entry);
  template <class Begin>
  Error or_end(RequestId name, Begin&& begin);
  Error post(Request::Kind kind, Ledger ledger, Proc proc, const Local& buffer, int tag, RequestId* request);
  Error take(Arrival kind, Proc* from, int* tag, Entry* entry);
  bool take_from(Arrival kind, Proc proc, int tag, Entry* entry);
  Error take_from_anybody(Arrival kind, Proc* from, int tag, Entry* entry);
  Error nobody(Proc* from);
  Error begin_transfers(Request::Kind kind, Arrival arrival, Proc* from, int* tag, std::uint64_t* size,
                        RequestId* request);
  Error move(Request::Kind kind, RequestId request, const Local& own, std::uint64_t offset);
  void settle(Request& r);
  void enter_fin(Request& r);

  // machine_peers.cc
  bool receive(Proc proc);
  bool receive_counts(Proc proc);
  bool receive_info(Proc proc, Ledger ledger);
  bool receive_fins(Proc proc);
  bool on_fin(Proc proc, const Entry& entry);
  void tell(Proc proc);
  void enter(Peer& peer, PeerState to);
  void end_requests(Proc proc);

  const Proc self_;
  Carrier& carrier_;
  const std::byte* boards_;
  std::vector<Peer> peers_;
  Requests requests_;
  Proc next_look_ = 0, next_take_ = 0;
};

}  // namespace ewarp::gravel
