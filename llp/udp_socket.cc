// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/udp_socket.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "llp/fd.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif

namespace ewarp::llp {
namespace {

constexpr int kReceiveBuffer = 8 << 20;  // octets; what an unprivileged process gets is net.core.rmem_max

// 0 or an errno.
int set(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof value) == 0 ? 0 : errno;
}

int new_socket(sa_family_t family) {
  return make_high_fd([=] { return ::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
}

int bind_any(int fd, sa_family_t family, std::uint16_t port) {
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  const int rc = family == AF_INET6 ? ::bind(fd, reinterpret_cast<const sockaddr*>(&v6), sizeof v6)
                                    : ::bind(fd, reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
  return rc == 0 ? 0 : errno;
}

// Each datagram says by which interface it came: none is taken of which that is not known. 0 or an errno.
int tell_interface(UdpHandle socket) {
  return socket.v6 ? set(socket.fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1) : set(socket.fd, IPPROTO_IP, IP_PKTINFO, 1);
}

}  // namespace

// What must be known of each datagram, and how datagrams leave: fragmented where they are longer than the path's MTU.
int prepare_udp_socket(UdpHandle socket) {
  const int fd = socket.fd;
  if (const int error = tell_interface(socket)) return error;
  set(fd, IPPROTO_IP, IP_RECVTTL, 1);
  set(fd, IPPROTO_IP, IP_RECVTOS, 1);
  if (socket.v6) {
    set(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
    set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
  }
  // Only the groups of this socket, not those of every process of the host.
  set(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
  if (socket.v6) set(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
  set_fragmenting(socket, true);
  set(fd, IPPROTO_UDP, UDP_GRO, 1);
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBuffer, sizeof kReceiveBuffer) != 0)
    set(fd, SOL_SOCKET, SO_RCVBUF, kReceiveBuffer);
  return 0;
}

void set_fragmenting(UdpHandle socket, bool fragments) {
  set(socket.fd, IPPROTO_IP, IP_MTU_DISCOVER, fragments ? IP_PMTUDISC_DONT : IP_PMTUDISC_DO);
  if (socket.v6) set(socket.fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, fragments ? IPV6_PMTUDISC_DONT : IPV6_PMTUDISC_DO);
}

std::size_t receive_buffer(UdpHandle socket) {
  int octets = 0;
  socklen_t size = sizeof octets;
  getsockopt(socket.fd, SOL_SOCKET, SO_RCVBUF, &octets, &size);
  return static_cast<std::size_t>(std::max(octets, 0));
}

unsigned path_mtu(const sockaddr_in6& to) {
  const bool v4 = is_v4(to.sin6_addr);
  const UdpSocket s = UdpSocket::unbound(v4 ? AF_INET : AF_INET6);
  const sockaddr_in to_v4{AF_INET, to.sin6_port, v4_of(to.sin6_addr), {}};
  const int rc = v4 ? connect(s.fd(), reinterpret_cast<const sockaddr*>(&to_v4), sizeof to_v4)
                    : connect(s.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
  int mtu = 0;
  socklen_t size = sizeof mtu;
  if (rc != 0 || getsockopt(s.fd(), v4 ? int{IPPROTO_IP} : int{IPPROTO_IPV6}, v4 ? IP_MTU : IPV6_MTU, &mtu, &size) != 0)
    return 0;
  return static_cast<unsigned>(std::max(mtu, 0));
}

UdpSocket::UdpSocket(UdpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)), v6_(other.v6_) {}

UdpSocket& UdpSocket::operator=(UdpSocket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
    v6_ = other.v6_;
  }
  return *this;
}

void UdpSocket::close() {
  if (fd_ >= 0) close_fd(std::exchange(fd_, -1));
}

UdpSocket UdpSocket::unbound(sa_family_t family) {
  UdpSocket s;
  s.fd_ = new_socket(family);
  s.v6_ = family == AF_INET6;
  return s;
}

int UdpSocket::release() {
  return std::exchange(fd_, -1);
}

int UdpSocket::open(std::uint16_t port, UdpSocket* out) {
  UdpSocket s;
  int error = 0;
  for (const sa_family_t family : {sa_family_t{AF_INET6}, sa_family_t{AF_INET}}) {
    s = {};
    s.fd_ = new_socket(family);
    s.v6_ = family == AF_INET6;
    error = s.fd_ < 0 ? errno : 0;
    if (error == 0 && s.v6_) set(s.fd_, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (error == 0) error = bind_any(s.fd_, family, port);
    if (!lacks_v6(error)) break;
  }
  if (error == 0) error = prepare_udp_socket(s);
  if (error != 0) return error;
  *out = std::move(s);
  return 0;
}

int UdpSocket::open_group(std::uint16_t port, sa_family_t family, UdpSocket* out) {
  UdpSocket s;
  s.fd_ = new_socket(family);
  if (s.fd_ < 0) return errno;
  s.v6_ = family == AF_INET6;
  set(s.fd_, SOL_SOCKET, SO_REUSEADDR, 1);
  if (s.v6_) set(s.fd_, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (const int error = bind_any(s.fd_, family, port)) return error;
  if (const int error = prepare_udp_socket(s)) return error;
  *out = std::move(s);
  return 0;
}

namespace {

int change_membership(const UdpSocket& s, const in6_addr& group, unsigned interface, bool join) {
  if (s.is_v6() == is_v4(group)) return EINVAL;
  int rc = 0;
  if (s.is_v6()) {
    const ipv6_mreq request{group, interface};
    rc = setsockopt(s.fd(), IPPROTO_IPV6, join ? IPV6_ADD_MEMBERSHIP : IPV6_DROP_MEMBERSHIP, &request, sizeof request);
  } else {
    const ip_mreqn request{v4_of(group), {}, static_cast<int>(interface)};
    rc = setsockopt(s.fd(), IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &request, sizeof request);
  }
  return rc == 0 ? 0 : errno;
}

}  // namespace

int UdpSocket::join(const in6_addr& group, unsigned interface) {
  return change_membership(*this, group, interface, true);
}

int UdpSocket::leave(const in6_addr& group, unsigned interface) {
  return change_membership(*this, group, interface, false);
}

}  // namespace ewarp::llp
