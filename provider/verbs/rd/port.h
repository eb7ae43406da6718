// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The reliable service of a UDP port: the table of its associations, shared by the queue pairs of RD that have a number
// of the port; its clock, its dice, its way to the socket.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "llp/rd/table.h"
#include "provider/verbs/rd/paths.h"
#include "provider/verbs/rd/wire.h"
#include "provider/verbs/ud/port.h"
#include "rdmap/datagram/endpoint.h"

namespace ewarp::verbs {

// A queue pair that has a number of the port. Engine held.
class RdUser {
 public:
  virtual rdmap::DatagramEndpoint& endpoint() = 0;
  // Something has happened to its associations; the table is at rest.
  virtual void progress() = 0;

 protected:
  ~RdUser() = default;
};

// Threading: engine held.
class RdPort final : public DatagramService, private llp::rd::Upper, private llp::rd::Entropy {
 public:
  static constexpr unsigned kMaxRdAtomic = 16;  // Reads and atomics of an association at once, in each direction

  // The reliable service behind this port; made at its first use.
  static RdPort& of(DatagramPort& port);

  explicit RdPort(DatagramPort& port);
  ~RdPort() override;

  // A queue pair of this port and its device.
  void attach(std::uint32_t number, RdUser& user, unsigned device);
  // Its associations linger where that may matter to a peer. Whoever knows its Q_Key is told that it has gone.
  void detach(std::uint32_t number, std::uint32_t qkey);

  // DatagramService
  bool takes(Octets payload) const override { return llp::is_reliable(payload); }
  void receive(const llp::UdpArrival& arrival) override;
  void begin_turn() override;
  void end_turn(bool any) override;
  void leave_peers(std::chrono::steady_clock::time_point until) override;

  // Requests for this peer wait; ah: the way to it, should there be no association yet.
  void wake(const llp::rd::Key& peer, const AddressHandle& ah);
  // Receives are there for associations that refused a message.
  void receives_posted(rdmap::DatagramEndpoint& endpoint);
  // All associations of a queue pair end; the peers are told.
  void reset(std::uint32_t number);
  // Memory of requests goes back to its owner: nothing that waits to be sent refers to it afterwards.
  void release_memory() { wire_.let_go(); }
  // After calls of wake() and receives_posted(): what came of them is sent, timers are set.
  void settle();

  const RdPath* path(const llp::rd::Key& peer);
  static llp::rd::Time now();

 private:
  struct Seat {
    RdUser* user = nullptr;
    rdmap::DatagramEndpoint* endpoint = nullptr;
    std::uint32_t number = 0;  // 0: nobody has had it yet
    std::uint32_t qkey = 0;    // of the last user, at its end
    unsigned device = 0;
    bool touched = false;
  };
  static constexpr std::size_t index_of(std::uint32_t number) { return number >> 16 & 0xff; }
  rdmap::DatagramEndpoint* endpoint_of(const llp::rd::Association& a) const {
    return seats_[index_of(a.key().local_qpn)].endpoint;
  }
  rdmap::DatagramEndpoint* touch(const llp::rd::Association& a);
  RdPaths::Name name_of(const llp::rd::Key& key) const {
    return {key.ip, key.local, seats_[index_of(key.local_qpn)].device};
  }
  bool arrived_from(const RdPaths::Ip& ip, std::uint32_t local) const;
  const RdPath* route(const llp::rd::Address& to, std::uint32_t number);
  void limit_paths();
  void tell_users();
  llp::rd::Time looked_after_until() const;
  void schedule();
  void set_timer(llp::rd::Time due, std::uint64_t generation);
  void on_timer(std::uint64_t generation);
  void publish();

  // Upper
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
  llp::rd::Take deliver(llp::rd::Association& a, const llp::rd::Incoming& in) override;
  bool place(llp::rd::Association& a, const llp::rd::Incoming& in) override;
  bool awaits_rest(const llp::rd::Association& a) const override;
  std::uint32_t message_limit(const llp::rd::Association& a) const override;

  // Entropy
  std::uint32_t draw() override;

  Engine& engine() const { return port_.engine(); }

  DatagramPort& port_;
  std::array<Seat, 256> seats_{};
  std::vector<std::uint8_t> touched_;  // indices of seats
  std::array<std::uint32_t, 64> dice_{};
  std::size_t dice_left_ = 0;
  RdPaths paths_;
  const llp::UdpArrival* arrival_ = nullptr;  // the one that is being received
  const RdPath* fresh_ = nullptr;             // the way to the peer that is being woken
  RdWire wire_;
  llp::rd::Table table_;
  // The table's deadline; that for which there is a timer, which is not later. Changed with the engine held, or by the
  // timer itself.
  std::atomic<llp::rd::Time> due_ = llp::rd::kNever, timer_at_ = llp::rd::kNever;
  std::atomic<std::uint64_t> timer_ = 0, timer_generation_ = 0;
  // What was in the socket at seen_until_ has been received. Timers run by that time: an acknowledgement that lies
  // there while the process stands still is not late.
  std::atomic<llp::rd::Time> turn_ = 0;
  llp::rd::Time seen_until_ = 0;
  unsigned busy_turns_ = 0;
  bool received_ = false;  // something, in this turn
  bool holds_ = false;     // the port, on behalf of associations
  llp::rd::Counters published_;
  std::size_t published_size_ = 0;
  llp::rd::Time round_trip_ = 0;  // of the association that was acknowledged last
};

}  // namespace ewarp::verbs
