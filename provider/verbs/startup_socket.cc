#include "provider/verbs/startup_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstring>
#include <unordered_set>

#include "llp/tcp.h"
#include "provider/verbs/log.h"
#include "provider/verbs/options.h"

namespace ewarp::verbs {
namespace {

std::unordered_set<int>& open_sockets() {
  static auto* s = new std::unordered_set<int>;
  return *s;
}

}  // namespace

StartupSocket::StartupSocket(int fd) : fd_(fd) {
  if (fd >= 0) open_sockets().insert(fd);
}

StartupSocket& StartupSocket::operator=(StartupSocket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

int StartupSocket::release() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0 || open_sockets().erase(fd) == 0) return -1;
  engine().unwatch(fd);
  return fd;
}

void StartupSocket::close() {
  const int fd = release();
  if (fd < 0) return;
  // A poll that the kernel has not cancelled yet keeps the socket alive beyond close(): say now that it ends.
  ::shutdown(fd, SHUT_RDWR);
  ::close(fd);
}

void StartupSocket::abort() {
  if (fd_ < 0 || !open_sockets().contains(fd_)) return;
  llp::reset_connection(fd_);
  close();
}

long StartupSocket::receive(MutableOctets into, int flags) const {
  return llp::receive_now(fd_, into, flags);
}

long StartupSocket::send(Octets data) const {
  return llp::send_now(fd_, data);
}

void StartupSocket::close_all_in_child() {
  for (const int fd : open_sockets()) ::close(fd);
  open_sockets().clear();
}

bool is_ipv4(const ibv_gid& gid) {
  static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0;
}

SocketName socket_name(const ibv_gid& gid, std::uint16_t port, unsigned interface) {
  SocketName name;
  if (is_ipv4(gid)) {
    auto& in = reinterpret_cast<sockaddr_in&>(name.storage);
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, gid.raw + 12, 4);
    name.size = sizeof in;
  } else {
    auto& in = reinterpret_cast<sockaddr_in6&>(name.storage);
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    std::memcpy(&in.sin6_addr, gid.raw, 16);
    if (IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr)) in.sin6_scope_id = interface;
    name.size = sizeof in;
  }
  return name;
}

ibv_gid gid_of_peer(int fd) {
  ibv_gid gid{};
  sockaddr_storage a{};
  socklen_t size = sizeof a;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&a), &size) != 0) return gid;
  if (a.ss_family == AF_INET) {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in&>(a).sin_addr, 4);
  } else if (a.ss_family == AF_INET6) {
    std::memcpy(gid.raw, &reinterpret_cast<const sockaddr_in6&>(a).sin6_addr, 16);
  }
  return gid;
}

std::string text_of(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (is_ipv4(gid))
    inet_ntop(AF_INET, gid.raw + 12, text, sizeof text);
  else
    inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return text;
}

void tune_startup_socket(int fd, bool peer_is_local) {
  if (const int error = llp::tune_stream(fd, options().congestion, peer_is_local); error != 0)
    log::debug("congestion control '{}' refused: errno {}", options().congestion, error);
}

}  // namespace ewarp::verbs
