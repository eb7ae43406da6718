// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/tcp.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ewarp::llp {

int tune_stream(int fd, const std::string& congestion, bool peer_is_local) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (congestion == "system" || (congestion == "auto" && !peer_is_local)) return 0;
  const std::string name = congestion == "auto" ? "reno" : congestion;
  const int rc = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size()));
  return rc == 0 ? 0 : errno;
}

void keep_alive(int fd, unsigned seconds) {
  if (seconds == 0) return;
  constexpr int kProbes = 5;
  const int on = 1, idle = static_cast<int>(seconds), interval = std::max(1, idle / (kProbes + 1));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
}

// tcpi_retransmits counts since the last acknowledgement that brought something forward, tcpi_probes since the last one
// at all. Only one of them counts at a time: the window is asked about when nothing is unacknowledged.
std::optional<Unanswered> unanswered(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  if (info.tcpi_unacked == 0 && info.tcpi_notsent_bytes == 0) return std::nullopt;
  return Unanswered{static_cast<unsigned>(info.tcpi_retransmits) + info.tcpi_probes,
                    std::chrono::milliseconds(info.tcpi_last_ack_recv)};
}

bool connects_hosts(int fd) {
  sockaddr_storage local{}, peer{};
  socklen_t local_size = sizeof local, peer_size = sizeof peer;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0 || local.ss_family != peer.ss_family)
    return false;
  if (peer.ss_family == AF_INET) {
    const in_addr a = reinterpret_cast<const sockaddr_in&>(local).sin_addr;
    const in_addr b = reinterpret_cast<const sockaddr_in&>(peer).sin_addr;
    return a.s_addr != b.s_addr && ntohl(b.s_addr) >> 24 != IN_LOOPBACKNET;
  }
  if (peer.ss_family != AF_INET6) return false;
  const in6_addr& a = reinterpret_cast<const sockaddr_in6&>(local).sin6_addr;
  const in6_addr& b = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  return !IN6_ARE_ADDR_EQUAL(&a, &b) && !(IN6_IS_ADDR_V4MAPPED(&b) && b.s6_addr[12] == IN_LOOPBACKNET);
}

int take_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

bool connected_to_itself(int fd) {
  sockaddr_storage local{}, peer{};
  socklen_t local_size = sizeof local, peer_size = sizeof peer;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_size) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 && local_size == peer_size &&
         std::memcmp(&local, &peer, local_size) == 0;
}

void reset_connection(int fd) {
  const sockaddr nobody{AF_UNSPEC, {}};
  // Past the C library, as the connection manager's close() is: ThreadSanitizer must see both or none.
  ::syscall(SYS_connect, fd, &nobody, sizeof nobody);
}

long send_now(int fd, Octets data) {
  const long n = ::send(fd, data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return n < 0 ? -errno : n;
}

long receive_now(int fd, MutableOctets into, int flags) {
  const long n = ::recv(fd, into.data(), into.size(), MSG_DONTWAIT | flags);
  return n < 0 ? -errno : n;
}

}  // namespace ewarp::llp
