// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Datagrams that arrive, many in one system call.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "llp/octets.h"
#include "llp/udp_socket.h"

namespace ewarp::llp {

// One datagram that arrived.
struct UdpArrival {
  Octets payload;  // valid until the next receive()
  sockaddr_in6 from{};
  in6_addr to{};
  unsigned interface = 0;
  std::uint8_t tos = 0, ttl = 0;
};

// What one socket had to say. Threading: one thread at a time; one for all sockets. Takes 64 KiB of memory for each
// message of a call, touched as far as datagrams fill it.
class UdpInbox {
 public:
  static constexpr unsigned kMost = 64;  // messages of one call

  UdpInbox();
  // Up to `most` messages, each of which may hold several datagrams (UDP_GRO). Returns their number, or -errno.
  int receive(UdpHandle socket, unsigned most);
  // Calls f(arrival) for each datagram of the last receive().
  template <class F>
  void for_each(F&& f) const {
    for (unsigned i = 0; i < count_; ++i) {
      Part part = part_of(i);
      for (std::size_t at = 0; at < part.octets.size() || at == 0; at += part.each) {
        part.arrival.payload = part.octets.subspan(at, std::min(part.each, part.octets.size() - at));
        f(part.arrival);
      }
    }
  }

 private:
  static constexpr std::size_t kRoom = 64 * 1024;
  static constexpr std::size_t kControl = 192;
  struct Part {
    UdpArrival arrival;
    Octets octets;
    std::size_t each;
  };
  struct Slot {
    sockaddr_in6 name;
    iovec vector;
    alignas(cmsghdr) std::byte control[kControl];
  };
  void prepare(unsigned i);
  Part part_of(unsigned i) const;

  std::unique_ptr<std::byte[]> memory_;
  std::vector<Slot> slots_;
  std::vector<mmsghdr> messages_;
  unsigned count_ = 0;
};

}  // namespace ewarp::llp
