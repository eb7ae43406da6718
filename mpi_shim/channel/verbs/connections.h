// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Who is connected with whom. Listens; connects to peers when it is asked to, again and again until it succeeds or the
// time is up; keeps one of two requests that cross; and takes connections down when they end. One peer has one
// connection at most. Without memory an attempt fails, and is made again; what stood ends and is told all the same.
//
// Threading: none; the endpoint's lock is held in every call.
#pragma once

#include <rdma/rdma_cma.h>

#include <cassert>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mpi_shim/channel/core/transport.h"
#include "mpi_shim/channel/verbs/address.h"
#include "mpi_shim/channel/verbs/completion_queue.h"
#include "mpi_shim/channel/verbs/connection.h"
#include "mpi_shim/channel/verbs/device.h"
#include "mpi_shim/channel/verbs/failed.h"
#include "mpi_shim/channel/verbs/hello.h"

namespace ewarp::channel {

// Whose connections they are. Told from inside calls of Connections'.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  // The number of a peer whose address is new.
  virtual PeerId add_peer() = 0;
  virtual void on_up(Connection& connection) = 0;
  // Its queue pair is gone: what the adapter had does not come back.
  virtual void on_gone(Connection& connection) = 0;
  // connect() was in vain: no connection comes to be. Before on_down().
  virtual void on_unreachable(PeerId peer, const std::string& why) = 0;
  // After on_gone(), if there was a connection. For good.
  virtual void on_down(PeerId peer) = 0;
};

class Connections {
 public:
  // address: to listen at; port 0: any. timeout_ns: of all attempts to reach a peer.
  // job: see JobSecret.
  Connections(const Tuning& tuning, const Address& address, const std::string& job, std::uint64_t timeout_ns,
              ConnectionOwner& owner)
      : tuning_(tuning), timeout_ns_(timeout_ns), owner_(owner), address_(address), job_(job) {}
  // Nobody is told of connections that stand.
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // What connections are made of.
  struct Parts {
    const Device* device = nullptr;
    CompletionQueue* completions = nullptr;
    BufferPool* receives = nullptr;  // of Link::receive_octets() each
    wire::Remote heartbeat;          // of this end
    std::uint8_t read_depth = 1;     // Reads under way, in either direction
  };
  // The parts stay for longer than this.
  Refusal listen(const Parts& parts);
  const Address& address() const { return address_; }
  // Becomes readable when handle() has something to do.
  int fd() const { return channel_->fd; }

  // This end is peer 0. Requires: before any other peer.
  void add_self();
  // The peer at this address. One that ended and is asked for again is another one.
  PeerId peer(const Address& address);
  // That one, if there is one that has not ended.
  std::optional<PeerId> living_peer(const Address& address) const;
  const Address& address_of(PeerId peer) const { return at(peer).address; }
  // Why the connection with it ended; empty if it did not, as between two attempts.
  const std::string& reason(PeerId peer) const { return at(peer).reason; }
  // Null if there is none, not even one that begins or ends.
  Connection* of(PeerId peer) const { return at(peer).connection.get(); }
  Connection* find(std::uint32_t serial) const;

  // Begins to connect with the next handle(). on_up() or on_down() follows.
  void connect(PeerId peer);
  // What comes before rdma_cm says that the connection stands is proof enough. their: what an active end was told.
  void established(Connection& c, const std::optional<Hello>& theirs);
  // It ends, as soon as everything that the adapter has came back: finish_drained() says so.
  void drop(Connection& c, const char* why);
  // The same for whatever there is with a peer, be it only the wish for a connection.
  void fail(PeerId peer, const char* why);
  void finish_drained();

  // What rdma_cm has to say, and what is due. True if it had something to say.
  bool handle();
  // Until when handle() has to be called though nothing comes; 0: never.
  std::uint64_t deadline() const;
  // Whether deadline() may be earlier than when this was asked last.
  bool take_timers_changed() { return std::exchange(timers_changed_, false); }

  // From everybody, in order.
  void disconnect();
  bool any() const;
  // f(connection), of each that there is.
  template <class F>
  void for_each(F&& f) const {
    for (const Peer& p : peers_)
      if (p.connection) f(*p.connection);
  }
  void end_all(const char* why);

 private:
  struct Peer {
    Address address;
    std::unique_ptr<Connection> connection;
    std::size_t place = 0;  // in living_
    bool dead = false;
    bool newcomer = false;         // it came by itself, and no connection with it has stood yet
    bool wanted = false;           // connect() was called, and nobody was told how it went
    std::uint64_t retry_at = 0;    // 0: no attempt is due
    std::uint64_t give_up_at = 0;  // of all attempts
    std::string last_refusal;      // of the attempts so far
    std::string reason;            // its end, or that of its connection that drains, or of the attempts
  };
  const Peer& at(PeerId peer) const {
    assert(peer < peers_.size());
    return peers_[peer];
  }
  Peer& at(PeerId peer) {
    assert(peer < peers_.size());
    return peers_[peer];
  }

  Connection& add(PeerId peer, OwnedId id, Connection::State first);
  std::string prepare(Connection& c);
  Hello hello(Hello::Answer answer, const Address& to) const;
  std::optional<PeerId> newcomer(const Address& address);
  bool is_of_this_job(const Hello& hello) const;
  rdma_conn_param parameters(const HelloOctets& hello) const;
  void begin(PeerId peer);
  void due(PeerId peer, std::uint64_t now);
  void handle(const rdma_cm_event& event, const std::optional<Hello>& hello);
  void on_event(const rdma_cm_event& event, const std::optional<Hello>& hello);
  void on_request(OwnedId id, const std::optional<Hello>& hello);
  void accept(PeerId from, OwnedId id, const Hello& theirs);
  void on_resolved(Connection& c);
  void on_route(Connection& c);
  void on_refused(Connection& c, const std::optional<Hello>& hello, std::string why);
  void refuse(OwnedId id, Hello::Answer answer, const Address& to = {});
  void finish_drained(PeerId peer);
  void destroy(Connection& c);
  void fail_to_reach(PeerId peer, std::string why);
  void give_up(PeerId peer, std::string why);

  const Tuning& tuning_;
  const std::uint64_t timeout_ns_;
  ConnectionOwner& owner_;
  Address address_;
  const JobSecret job_;
  Parts parts_;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  std::vector<Peer> peers_;
  std::vector<PeerId> living_;  // all that are not dead, in any order, but for this end
  std::map<Address, PeerId> by_address_;
  std::unordered_map<std::uint32_t, Connection*> by_serial_;
  std::uint32_t next_serial_ = 1;
  List<Connection, &Connection::drains> draining_;
  bool timers_changed_ = false;
};

}  // namespace ewarp::channel
