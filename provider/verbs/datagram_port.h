// The UDP socket behind up to 256 QP numbers: who gets what arrives, and who sends when there is room again. Used by UD
// QPs; those of RD are sinks like them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "llp/datagram_header.h"
#include "llp/udp_socket.h"
#include "provider/verbs/pollable.h"

namespace ewarp::verbs {

class DatagramPort;

// A datagram for a QP: passed every check up to its CRC.
struct DatagramIn {
  const llp::Datagram& datagram;
  const llp::UdpArrival& arrival;
  DatagramPort* port = nullptr;  // null: it came to a group
};

// A queue pair as the receiver of datagrams. Threading: engine held.
class DatagramSink {
 public:
  virtual void receive(const DatagramIn& in) = 0;
  // Sends what waits, a bounded amount. True: there is more, and the port has room.
  virtual bool transmit() = 0;

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

class DatagramPort final : public Pollable {
 public:
  // The port of a number that take_datagram() gave; made at its first use, for good. Engine held.
  static std::shared_ptr<DatagramPort> of(std::uint32_t number);
  static void forget_in_child();

  explicit DatagramPort(llp::UdpSocket socket) : socket_(std::move(socket)) {}

  void attach(std::uint32_t number, DatagramSink& sink);
  void detach(std::uint32_t number, DatagramSink& sink);

  const llp::UdpSocket& socket() const { return socket_; }
  // Sends the outbox's datagrams from the first on: how many were taken; the rest waits if *error is EAGAIN.
  std::size_t send(llp::UdpOutbox& outbox, int* error);
  bool blocked() const { return blocked_; }
  // transmit() is called again when there is room, in turns with others that wait.
  void wait(DatagramSink& sink);

  // Pollable
  int fd() const override { return socket_.fd(); }
  bool turn() override;
  bool wants_to_write() const override { return !waiting_.empty(); }
  void close_in_child() override;

 private:
  bool serve_waiting();
  void arrived(const llp::UdpArrival& arrival);

  llp::UdpSocket socket_;
  std::array<DatagramSink*, 256> sinks_{};
  unsigned users_ = 0;
  std::vector<DatagramSink*> waiting_, being_served_;
  bool blocked_ = false;
  DatagramReader reader_;
};

// Shared by all sockets of the process; engine held.
llp::UdpInbox& datagram_inbox();
llp::UdpOutbox& datagram_outbox();
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
