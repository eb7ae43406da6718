// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// QP numbers, and the TCP and UDP ports behind them: number = index << 16 | port (docs/protocol/datagrams.md section
// 2), so that {GID, QPN} is all that a peer has to know.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

#include "llp/mutex.h"
#include "llp/udp_socket.h"

namespace ewarp::verbs {

// A port is reserved by a bound socket, one for 256 QPs, since a number that a program knows must not belong to another
// process by the time it is used. Nobody listens on it before a QP asks for it (bring_up.h).
// Threading: any thread; never enters the engine.
class QpNumbers {
 public:
  // Round-robin, so that a freed number does not return soon. Without a free port the numbers have a port below 1024:
  // good for everything but being reached by number.
  std::uint32_t take();
  // One whose UDP port is ours as well; 0 where none can be had.
  std::uint32_t take_datagram();
  void give(std::uint32_t number);
  // The bound socket of this number's port; -1 if it has none. Stays open for good.
  int socket_of(std::uint32_t number);
  // The UDP socket of a port that take_datagram() gave a number of; the first caller has it, for good.
  llp::UdpSocket claim_udp(std::uint16_t port);

  void before_fork() EWARP_ACQUIRE(mutex_) { mutex_.lock(); }
  void after_fork_parent() EWARP_RELEASE(mutex_) { mutex_.unlock(); }
  // The ports are the parent's.
  void after_fork_child() EWARP_RELEASE(mutex_);

 private:
  struct Port {
    int fd;
    std::uint16_t port;
    std::uint8_t next;
    std::bitset<256> taken;
    enum class Udp { unknown, ours, refused } udp_state = Udp::unknown;
    llp::UdpSocket udp{};
  };
  Port& with_room() EWARP_REQUIRES(mutex_);
  Port& add_port() EWARP_REQUIRES(mutex_);
  static bool has_udp(Port& port);
  static std::uint32_t take_from(Port& port);

  llp::Mutex mutex_;
  std::vector<Port> ports_ EWARP_GUARDED_BY(mutex_);
};

QpNumbers& qp_numbers();

constexpr std::uint16_t port_of(std::uint32_t number) {
  return static_cast<std::uint16_t>(number);
}

}  // namespace ewarp::verbs
