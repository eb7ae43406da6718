// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// UDP sockets for datagrams with their addresses, TTL and type of service (udp_inbox.h, udp_outbox.h).
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "llp/udp_address.h"

namespace ewarp::llp {

// A socket by its number, of AF_INET6 or AF_INET.
struct UdpHandle {
  int fd;
  bool v6;
};

// What a UDP socket needs so that UdpInbox learns all of a datagram; no groups but its own; a large receive buffer. 0
// or an errno: it would not learn by which interface one came.
[[nodiscard]] int prepare_udp_socket(UdpHandle socket);

// Whether datagrams longer than the path's MTU are cut into IP fragments; if not, they are refused (EMSGSIZE).
void set_fragmenting(UdpHandle socket, bool fragments);
// Octets that may wait to be read, as the kernel counts them.
std::size_t receive_buffer(UdpHandle socket);
// What the kernel knows of the path's MTU, octets; 0: nothing.
unsigned path_mtu(const sockaddr_in6& to);

// A non-blocking socket. Threading: one thread at a time.
class UdpSocket {
 public:
  UdpSocket() = default;
  UdpSocket(UdpSocket&& other) noexcept;
  UdpSocket& operator=(UdpSocket&& other) noexcept;
  ~UdpSocket() { close(); }

  // Bound to this port on all addresses, of both families where there is IPv6, exclusively. 0 or a positive errno.
  static int open(std::uint16_t port, UdpSocket* out);
  // Bound to nothing; fd() is -1 if there is none to be had.
  static UdpSocket unbound(sa_family_t family);
  // One that several processes share, for the groups it joins; of one family. 0 or a positive errno.
  static int open_group(std::uint16_t port, sa_family_t family, UdpSocket* out);

  // 0 or a positive errno. Requires: a socket of open_group().
  int join(const in6_addr& group, unsigned interface);
  int leave(const in6_addr& group, unsigned interface);

  int fd() const { return fd_; }
  bool is_v6() const { return v6_; }
  operator UdpHandle() const { return {fd_, v6_}; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();
  int release();  // the caller closes it

 private:
  int fd_ = -1;
  bool v6_ = false;
};

}  // namespace ewarp::llp
