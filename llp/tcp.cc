// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
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
