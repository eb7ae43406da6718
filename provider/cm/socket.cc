#include "provider/cm/socket.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "llp/fd.h"
#include "llp/tcp.h"
#include "provider/verbs/log.h"
#include "provider/verbs/options.h"
#include "provider/verbs/reactor.h"

namespace ewarp::cm {

bool FdRegistry::add(int fd) {
  if (fd < 0 || fd >= kLimit) return false;
  words_[fd / 64].fetch_or(std::uint64_t{1} << (fd % 64), std::memory_order_release);
  int seen = highest_.load(std::memory_order_relaxed);
  while (seen < fd && !highest_.compare_exchange_weak(seen, fd, std::memory_order_release)) {
  }
  return true;
}

void FdRegistry::remove(int fd) {
  if (fd >= 0 && fd < kLimit) words_[fd / 64].fetch_and(~(std::uint64_t{1} << (fd % 64)), std::memory_order_release);
}

bool FdRegistry::contains(int fd) const {
  return fd >= 0 && fd < kLimit && (words_[fd / 64].load(std::memory_order_acquire) >> (fd % 64) & 1) != 0;
}

FdRegistry& socket_registry() {
  static constinit FdRegistry registry;
  return registry;
}

Socket::Socket(int fd) : fd_(fd) {
  socket_registry().add(fd);
}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

int Socket::release() {
  if (fd_ >= 0) {
    verbs::reactor().unwatch(fd_);
    socket_registry().remove(fd_);
  }
  return std::exchange(fd_, -1);
}

void Socket::close() {
  const int fd = release();
  if (fd < 0) return;
  // A poll that the kernel has not cancelled yet keeps the socket alive beyond close(): say now that it ends.
  ::shutdown(fd, SHUT_RDWR);
  raw_close(fd);
}

void Socket::abort() {
  if (fd_ < 0) return;
  llp::reset_connection(fd_);
  close();
}

namespace {

void set_option(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

void set_tos(int fd, const Address& address, std::uint8_t tos) {
  if (address.family() == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_TCLASS, tos);
  set_option(fd, IPPROTO_IP, IP_TOS, tos);
}

int open_socket(sa_family_t family, bool datagram) {
  const int type = (datagram ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK | SOCK_CLOEXEC;
  return llp::make_high_fd([&] { return ::socket(family, type, 0); });
}

}  // namespace

int open_bound(const Address& local, const SocketOptions& options, Socket* out) {
  const int fd = open_socket(local.family(), options.datagram);
  if (fd < 0) return errno;
  Socket socket(fd);
  if (!options.datagram && options.reuse) set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (local.family() == AF_INET6 && options.v6_only) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, *options.v6_only);
  if (options.late_port) set_option(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  if (options.tos) set_tos(fd, local, *options.tos);
  if (bind(fd, local.get(), local.size()) != 0) return errno;
  *out = std::move(socket);
  return 0;
}

void tune_stream(int fd, const Address& peer, bool peer_is_local, std::optional<std::uint8_t> tos) {
  if (tos) set_tos(fd, peer, *tos);
  if (const int error = llp::tune_stream(fd, options().congestion, peer_is_local); error != 0)
    log::debug("cm: congestion control '{}' refused: errno {}", options().congestion, error);
}

long raw_write(int fd, const void* data, std::size_t size) {
  return syscall(SYS_write, fd, data, size);
}

void raw_close(int fd) {
  syscall(SYS_close, fd);
}

}  // namespace ewarp::cm
