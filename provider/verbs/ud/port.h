// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The UDP socket behind up to 256 QP numbers: who gets what arrives, and who sends when there is room again. Used by UD
// QPs; those of RD are sinks like them.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "llp/datagram_header.h"
#include "llp/udp_inbox.h"
#include "llp/udp_outbox.h"
#include "provider/engine/pollable.h"
#include "provider/verbs/ud/arrival_gate.h"

namespace ewarp::verbs {

class DatagramPort;
class Device;
class Engine;

// A datagram for a QP: passed every check up to its CRC.
struct DatagramIn {
  const llp::Datagram& datagram;
  const llp::UdpArrival& arrival;
  DatagramPort* port = nullptr;  // null: it came to a group
};

// Who has datagrams to send when there is room. Threading: engine held.
class DatagramSender {
 public:
  // Sends what waits, a bounded amount. True: there is more, and the port has room.
  virtual bool transmit() = 0;

 protected:
  ~DatagramSender() = default;
};

// A queue pair as the receiver of datagrams.
class DatagramSink : public DatagramSender {
 public:
  virtual void receive(const DatagramIn& in) = 0;

 protected:
  ~DatagramSink() = default;
};

// Reads from a socket, as many messages at once as lately were there.
class DatagramReader {
 public:
  // One system call; f(arrival) for each datagram. True: something arrived.
  template <class F>
  bool read(const llp::UdpSocket& socket, F&& f);

 private:
  void adapt(unsigned got, std::size_t octets);
  unsigned batch_ = 1;
};

// Another service behind a port: what it takes is not for the queue pairs of UD. Threading: engine held.
class DatagramService {
 public:
  virtual ~DatagramService() = default;
  virtual bool takes(Octets payload) const = 0;
  virtual void receive(const llp::UdpArrival& arrival) = 0;
  // Around a read of the socket, and all receive() of it. any: something had arrived.
  virtual void begin_turn() = 0;
  virtual void end_turn(bool any) = 0;
  // The process ends: bounded by `until`, peers get what they are owed.
  virtual void leave_peers(std::chrono::steady_clock::time_point until) = 0;
};

class DatagramPort final : public Pollable, public std::enable_shared_from_this<DatagramPort> {
 public:
  // Before a queue pair is attached, and without the engine: it takes a look at all interfaces.
  static void look_at_interfaces();
  // The port of a number that take_datagram() gave; made at its first use, for good. Engine held.
  static std::shared_ptr<DatagramPort> of(Engine& engine, std::uint32_t number);
  static void forget_in_child();
  // The process ends: what peers of reliable datagrams are still owed leaves, until this time. Engine held.
  static void leave_peers(std::chrono::steady_clock::time_point until);

  DatagramPort(Engine& engine, llp::UdpSocket socket);
  ~DatagramPort() override;

  Engine& engine() const { return engine_; }
  // device: the queue pair's. It alone is reached by the number, until another one has it.
  void attach(std::uint32_t number, DatagramSink& sink, const Device& device);
  void detach(std::uint32_t number, DatagramSink& sink);

  const llp::UdpSocket& socket() const { return socket_; }
  // Null: none yet.
  DatagramService* service() const { return service_.get(); }
  void set_service(std::unique_ptr<DatagramService> service) { service_ = std::move(service); }
  // Counts as a queue pair: the socket is watched.
  void hold();
  void let_go();
  // Sends the outbox's datagrams from the first on: how many were taken; the rest waits if *error is EAGAIN. whole:
  // they are not to be fragmented, *error is EMSGSIZE for what is too long.
  std::size_t send(llp::UdpOutbox& outbox, int* error, bool whole = false);
  // There was no room, and somebody waits for it: who comes now stands behind them.
  bool blocked() const { return blocked_ && !waiting_.empty(); }
  // transmit() is called again when there is room, in turns with others that wait.
  void wait(DatagramSender& sender);

  // Pollable
  int fd() const override { return socket_.fd(); }
  std::size_t turn() override;
  bool wants_to_write() const override { return !waiting_.empty(); }
  void close_in_child() override;

 private:
  // A number of the port, and who has it or had it last.
  struct Seat {
    DatagramSink* sink = nullptr;
    std::uint32_t number = 0;  // 0: nobody has had it yet
    const Device* device = nullptr;
  };
  bool is_for_us(const llp::UdpArrival& arrival);
  bool serve_waiting();
  void arrived(const llp::UdpArrival& arrival);

  Engine& engine_;
  llp::UdpSocket socket_;
  ArrivalGate gate_;
  std::array<Seat, 256> seats_{};
  std::vector<const Device*> devices_;  // of all seats, ever
  unsigned users_ = 0;
  std::vector<DatagramSender*> waiting_, being_served_;
  bool blocked_ = false;  // a send() found no room since those who wait had their turn
  bool whole_ = false;    // the socket sets DF
  DatagramReader reader_;
  std::unique_ptr<DatagramService> service_;
};

// Shared by all sockets of the process; engine held.
llp::UdpInbox& datagram_inbox();
llp::UdpOutbox& datagram_outbox();
bool came_by_loopback(const llp::UdpArrival& arrival);
// Whether the sender may do without a CRC (flag N).
bool may_lack_crc(const llp::UdpArrival& arrival);
// Checks what arrived up to its CRC and counts what is dropped. False: dropped.
bool accept_datagram(const llp::UdpArrival& arrival, llp::Datagram* out);
void count_drop(llp::DatagramDrop why);

template <class F>
bool DatagramReader::read(const llp::UdpSocket& socket, F&& f) {
  const int got = datagram_inbox().receive(socket, batch_);
  std::size_t octets = 0;
  if (got > 0)
    datagram_inbox().for_each([&](const llp::UdpArrival& arrival) {
      octets += arrival.payload.size();
      f(arrival);
    });
  adapt(got > 0 ? static_cast<unsigned>(got) : 0, octets);
  return got > 0;
}

}  // namespace ewarp::verbs
