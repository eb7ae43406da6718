// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the protocols ask of whatever carries them: ordered, reliable messages between two peers, one-sided Writes and
// Reads, and memory that peers may reach. Implemented over verbs, and in tests by a wire in virtual time.
#pragma once

#include <cstdint>
#include <optional>

#include "mpi_shim/channel/core/types.h"
#include "mpi_shim/channel/core/wire.h"

namespace ewarp::channel {

// Given with a request and back with its completion.
using Cookie = std::uint64_t;

// What wakes the progress thread while nobody is inside the library; each includes those before it.
enum class Wake : std::uint8_t {
  nothing,
  control,     // messages that its peer sent solicited, and failures
  everything,  // whatever completes
};

// Memory that was made reachable.
struct Exposed {
  virtual ~Exposed() = default;
  wire::Remote remote;  // of its first octet
};

// What the transport tells, never from inside a call of Transport's.
class TransportEvents {
 public:
  virtual ~TransportEvents() = default;
  // The connection stands. Requests may be taken from now on.
  virtual void on_peer_up(PeerId peer) = 0;
  // The connection is gone for good. Every completion of it was delivered before.
  virtual void on_peer_down(PeerId peer) = 0;
  // There is room again after a request was refused.
  virtual void on_writable(PeerId peer) = 0;
  // One Send. The octets are valid during the call.
  virtual void on_received(PeerId peer, Octets octets) = 0;
  // One Write with immediate.
  virtual void on_immediate(PeerId peer, std::uint32_t immediate, std::size_t written) = 0;
  // ok: false if the request was not carried out, and nothing further will be on this connection.
  virtual void on_complete(Cookie cookie, bool ok) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  enum class Taken : std::uint8_t {
    refused,   // the path is full; on_writable follows
    in_place,  // the source must stay until the completion
    copied,    // the source is the caller's again
  };
  // What memory is made reachable for.
  enum class Reach : std::uint8_t {
    own,      // Sends and Writes of this end
    read,     // peers may read it
    written,  // Reads put data there, and peers may write it
  };

  // Nanoseconds from any origin, never backwards.
  virtual std::uint64_t now() = 0;
  // The same, as it was when somebody began to look for what the events tell now.
  virtual std::uint64_t polled_at() = 0;

  // Makes sure that on_peer_up or on_peer_down follows, unless the peer is up.
  virtual void connect(PeerId peer) = 0;
  // The peer broke the protocol, or seems dead: on_peer_down follows.
  virtual void fail(PeerId peer, const char* why) = 0;

  // Each is taken and completed later, or refused. Sends and Writes of a peer arrive in the order in which they were
  // taken. The header is copied. copy: the source too, which has eager_threshold octets at most. solicited: it raises
  // an event at the peer also where only control messages do (Wake::control). followed: the next call is another
  // send() to this peer, with which it may go.
  virtual Taken send(PeerId peer, Octets header, Octets payload, bool copy, bool solicited, bool followed,
                     Cookie cookie) = 0;
  // immediate: gives the peer an on_immediate behind the data. Requires has_immediate() for that. memory: what expose()
  // gave for the source (target); null for one of eager_threshold octets at most, which is copied or registered as in
  // send().
  virtual Taken write(PeerId peer, Octets source, const Exposed* memory, wire::Remote target,
                      std::optional<std::uint32_t> immediate, bool copy, bool solicited, Cookie cookie) = 0;
  // True: taken; the target must stay until the completion.
  virtual bool read(PeerId peer, MutableOctets target, const Exposed* memory, wire::Remote source, Cookie cookie) = 0;
  // A request that the peer's adapter answers without its application: completes when the peer is alive.
  virtual bool ping(PeerId peer, Cookie cookie) = 0;
  virtual bool has_immediate(PeerId peer) = 0;
  // Receives for the Sends and Writes with immediate of a peer that is up. Each uses one, which is posted again when
  // on_received() or on_immediate() returns, or before something of our own leaves that uses one of the peer's. First
  // there are Link::receives() for the first window. False: there cannot be more.
  virtual bool add_receives(PeerId peer, std::uint32_t count) = 0;
  // One that is used is not posted again: that of the message which is looked at, or the next. Requires: it had been
  // added.
  virtual void take_receive(PeerId peer) = 0;
  // The most octets of one Write or Read.
  virtual std::size_t longest_transfer() const = 0;

  // Memory for Writes and Reads of both ends. Null if it cannot be had. Memory of no octets needs none.
  virtual Exposed* expose(MutableOctets memory, Reach reach) = 0;
  // Requires: no request uses it, and no peer will.
  virtual void conceal(Exposed* memory) = 0;
};

}  // namespace ewarp::channel
