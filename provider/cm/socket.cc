// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/cm/socket.h"

#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "llp/fd.h"
#include "provider/startup/terms.h"

namespace ewarp::cm {

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

// The ports that the kernel gives out itself; {0, 0}: some of them are reserved, which only the kernel sees to.
struct PortRange {
  unsigned first = 0, last = 0;
};

PortRange read_port_range() {
  PortRange range;
  std::string reserved;
  if (std::ifstream("/proc/sys/net/ipv4/ip_local_reserved_ports") >> reserved) return {};
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> range.first >> range.last;
  return range.first >= 1024 && range.last > range.first && range.last <= 65535 ? range : PortRange{};
}

// To a free port of the kernel's choice. Its search takes milliseconds when many ports are in TIME_WAIT (a client that
// made thousands of connections in the last minute): a few random ones are tried first.
int bind_to_any_port(int fd, const Address& local) {
  constexpr int kTries = 16;
  static const PortRange range = read_port_range();
  for (int i = 0; range.last != 0 && i < kTries; ++i) {
    std::uint16_t random = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) break;
    Address with_port = local;
    with_port.set_port(static_cast<std::uint16_t>(range.first + random % (range.last - range.first + 1)));
    if (bind(fd, with_port.get(), with_port.size()) == 0) return 0;
    if (errno != EADDRINUSE) break;
  }
  return bind(fd, local.get(), local.size());
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
  const bool any_port = local.port() == 0 && !options.late_port && !options.datagram;
  if ((any_port ? bind_to_any_port(fd, local) : bind(fd, local.get(), local.size())) != 0) return errno;
  *out = std::move(socket);
  return 0;
}

void tune_stream(int fd, const Address& peer, bool peer_is_local, std::optional<std::uint8_t> tos) {
  if (tos) set_tos(fd, peer, *tos);
  verbs::tune_socket(fd, peer_is_local);
}

long raw_write(int fd, const void* data, std::size_t size) {
  return syscall(SYS_write, fd, data, size);
}

}  // namespace ewarp::cm
