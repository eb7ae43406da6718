// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The transport over reliable connections of public verbs, set up by rdma_cm when they are first needed: requests to
// the adapter, and what comes of them. The rest is in parts of their own: who is connected with whom (Connections),
// registered memory (RequestMemory), what the adapter has (Records).
//
// Threading: none; the endpoint's lock is held in every call but take_events().
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "llp/clock.h"
#include "mpi_shim/channel/core/counters.h"
#include "mpi_shim/channel/core/transport.h"
#include "mpi_shim/channel/verbs/address.h"
#include "mpi_shim/channel/verbs/buffer_pool.h"
#include "mpi_shim/channel/verbs/completion_queue.h"
#include "mpi_shim/channel/verbs/connections.h"
#include "mpi_shim/channel/verbs/connections_turn.h"
#include "mpi_shim/channel/verbs/device.h"
#include "mpi_shim/channel/verbs/failed.h"
#include "mpi_shim/channel/verbs/heartbeat.h"
#include "mpi_shim/channel/verbs/records.h"
#include "mpi_shim/channel/verbs/request_memory.h"

namespace ewarp::channel {

struct VerbsOptions {
  Address address;                                    // to listen at; port 0: any
  std::shared_ptr<Device> device;                     // null: the one that has the address
  std::string job;                                    // its secret; empty: none
  std::uint64_t connect_timeout_ns = 10'000'000'000;  // for a peer that does not listen yet, too
  Registration registration = Registration::measured;
  std::size_t kept_registrations = 1024;
  bool end_if_unreachable = false;  // the process, if a connection that is asked for does not come to be
};

class VerbsTransport final : public Transport, private ConnectionOwner {
 public:
  VerbsTransport(const Tuning& tuning, const VerbsOptions& options);
  VerbsTransport(const VerbsTransport&) = delete;
  VerbsTransport& operator=(const VerbsTransport&) = delete;

  // Opens the device and listens.
  Refusal open();
  // Who is told, and who makes a PeerId for an address that is new. Our own address is peer 0. Requires: before
  // anything else after open().
  void attach(TransportEvents& events, Counters& counters, std::function<PeerId()> add_peer);

  const Address& address() const { return connections_.address(); }
  PeerId peer(const Address& address) { return connections_.peer(address); }
  std::optional<PeerId> living_peer(const Address& address) const { return connections_.living_peer(address); }
  const Address& address_of(PeerId peer) const { return connections_.address_of(peer); }
  // Why the connection with it ended; empty if it did not.
  const std::string& reason(PeerId peer) const { return connections_.reason(peer); }

  // Handles what has come, without waiting. True if that was anything. Nothing is thrown: what finds no memory ends
  // the connection that it belongs to.
  // connections: now and then also what rdma_cm has to say, and what is due.
  // now: read from the clock by the caller, when it began.
  bool poll(std::uint64_t now, bool connections = true);
  // The next poll() does that in any case.
  void look_at_connections() { connections_turn_.ask(); }
  // From here on the completion fd becomes readable when that comes; poll() once more before sleeping.
  void arm(Wake wake) { completions_.arm(wake); }
  // Takes the events that made it readable. Needs no lock, but one caller at a time.
  void take_events() { completions_.take_events(); }
  int completion_fd() const { return completions_.fd(); }
  int connection_fd() const { return connections_.fd(); }
  // Until when poll() has to be called though nothing comes; 0: never.
  std::uint64_t deadline() const;
  // Whether deadline() may be earlier than when this was asked last.
  bool take_timers_changed() {
    const bool mine = std::exchange(timers_changed_, false);
    return connections_.take_timers_changed() || mine;
  }
  // Disconnects from everybody, in order, within so many nanoseconds.
  void close(std::uint64_t patience_ns);
  RegistrationCache& registrations() { return memory_.registrations(); }

  std::uint64_t now() override { return monotonic_ns(); }
  std::uint64_t polled_at() override { return connections_turn_.polled_at(); }
  void connect(PeerId peer) override;
  void fail(PeerId peer, const char* why) override;
  Taken send(PeerId peer, Octets header, Octets payload, bool copy, bool solicited, bool followed,
             Cookie cookie) override;
  Taken write(PeerId peer, Octets source, const Exposed* memory, wire::Remote target,
              std::optional<std::uint32_t> immediate, bool copy, bool solicited, Cookie cookie) override;
  bool read(PeerId peer, MutableOctets target, const Exposed* memory, wire::Remote source, Cookie cookie) override;
  bool ping(PeerId peer, Cookie cookie) override;
  bool has_immediate(PeerId peer) override;
  bool add_receives(PeerId peer, std::uint32_t count) override;
  void take_receive(PeerId peer) override;
  std::size_t longest_transfer() const override { return device_->longest_transfer(); }
  Exposed* expose(MutableOctets memory, Reach reach) override { return memory_.expose(memory, reach); }
  void conceal(Exposed* memory) override { memory_.conceal(memory); }
  // Memory that peers reach until it is concealed, and no longer. Null if it cannot be had.
  Exposed* expose_window(MutableOctets memory) { return memory_.expose_window(memory); }

 private:
  PeerId add_peer() override { return add_peer_(); }
  void on_up(Connection& connection) override;
  void on_gone(Connection& connection) override;
  void on_unreachable(PeerId peer, const std::string& why) override;
  void on_down(PeerId peer) override { events_->on_peer_down(peer); }

  Connection* ready(PeerId peer);
  Connection* ready_with_receives(PeerId peer);
  void refuse(Connection& c, const Record& record);
  bool post(Connection& c, ibv_send_wr& wr, Record& record);
  Taken send_or_hold(PeerId peer, Octets header, Octets payload, bool copy, bool solicited, bool followed,
                     Cookie cookie);
  void hold(Connection& c, const ibv_send_wr& wr, std::span<const ibv_sge> sges, Record& record);
  void post_held();
  bool post_read(Connection& c, ibv_sge& sge, wire::Remote source, Record& record);
  void greet(Connection& c);
  void completed(const ibv_wc& wc);
  void tell(Connection& c, const Record& record, bool ok);
  void try_again();
  void set_writable(Connection& c);
  void tell_writable();
  void received(Connection& c, std::uint32_t index, const ibv_wc& wc);

  const Tuning tuning_;
  const VerbsOptions options_;
  TransportEvents* events_ = nullptr;
  std::function<PeerId()> add_peer_;

  // In the order in which they need each other.
  std::shared_ptr<Device> device_;
  CompletionQueue completions_;
  Heartbeat heartbeat_;
  RequestMemory memory_;
  std::optional<BufferPool> receives_;
  Records records_;
  Connections connections_;

  // Sends that are posted together with the next one.
  struct Held {
    ibv_send_wr wr;
    ibv_sge sges[2];
  };
  static constexpr std::size_t kMostHeld = 16;
  std::array<Held, kMostHeld> held_;
  std::uint32_t held_count_ = 0;
  Connection* held_for_ = nullptr;

  List<Connection, &Connection::writables> writable_;  // who is told so at the end of poll()
  std::uint64_t try_again_at_ = 0;                     // whoever was refused with nothing under way; 0: nobody was
  bool timers_changed_ = false;
  ConnectionsTurn connections_turn_;
};

}  // namespace ewarp::channel
