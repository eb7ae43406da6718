// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/qp_numbers.h"

#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdio>

#include "llp/fd.h"
#include "llp/mutex.h"
#include "provider/base/log.h"

namespace ewarp::verbs {
namespace {

constexpr unsigned kLowest = 16384;   // below it well-known services live
constexpr unsigned kHighest = 65534;  // index 255 of 65535 is the multicast QPN
constexpr int kTries = 64;

unsigned random_number() {
  unsigned n = 0;
  if (getrandom(&n, sizeof n, GRND_NONBLOCK) != sizeof n) n = static_cast<unsigned>(getpid()) * 2654435761u;
  return n;
}

// The kernel gives these to connect(): one that is free now may be somebody's local port the next moment.
void ephemeral_ports(unsigned* first, unsigned* last) {
  *first = 32768;
  *last = 60999;
  if (FILE* f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re")) {
    if (fscanf(f, "%u %u", first, last) != 2) *first = *last = 0;
    fclose(f);
  }
}

// On all addresses, of both families where there is IPv6. No SO_REUSEADDR: two processes that set it could have the
// same port. -1: the port is taken, or nothing can be had.
int bind_port(unsigned port) {
  const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  int fd = llp::make_high_fd([&] { return ::socket(AF_INET6, type, 0); });
  if (fd >= 0) {
    const int off = 0;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(static_cast<std::uint16_t>(port));
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0) return fd;
    const int error = errno;
    ::close(fd);
    if (!llp::lacks_v6(error)) return -1;
  } else if (!llp::lacks_v6(errno)) {
    return -1;
  }
  fd = llp::make_high_fd([&] { return ::socket(AF_INET, type, 0); });
  if (fd < 0) return -1;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0) return fd;
  ::close(fd);
  return -1;
}

int bind_somewhere(unsigned first, unsigned last, std::uint16_t* port) {
  for (int i = 0; first <= last && i < kTries; ++i) {
    const unsigned candidate = first + random_number() % (last - first + 1);
    const int fd = bind_port(candidate);
    if (fd < 0) continue;
    *port = static_cast<std::uint16_t>(candidate);
    return fd;
  }
  return -1;
}

int reserve_port(std::uint16_t* port) {
  unsigned first, last;
  ephemeral_ports(&first, &last);
  int fd = bind_somewhere(std::max(last + 1, kLowest), kHighest, port);
  if (fd < 0 && first > kLowest) fd = bind_somewhere(kLowest, first - 1, port);
  if (fd < 0) fd = bind_somewhere(kLowest, kHighest, port);
  return fd;
}

}  // namespace

QpNumbers& qp_numbers() {
  static QpNumbers* n = new QpNumbers;
  return *n;
}

QpNumbers::Port& QpNumbers::add_port() {
  const auto without = std::count_if(ports_.begin(), ports_.end(), [](const Port& p) { return p.fd < 0; });
  Port& p = ports_.emplace_back();  // first: without memory nothing is reserved
  p.fd = reserve_port(&p.port);
  p.next = static_cast<std::uint8_t>(random_number());
  if (p.fd < 0) {
    p.port = static_cast<std::uint16_t>(1023 - without % 1023);
    log::info("no TCP port for QP numbers: QPs can be connected by rdma_cm only");
  }
  return p;
}

QpNumbers::Port& QpNumbers::with_room() {
  for (Port& p : ports_)
    if (!p.taken.all()) return p;
  return add_port();
}

std::uint32_t QpNumbers::take_from(Port& p) {
  assert(!p.taken.all());
  while (p.taken.test(p.next)) ++p.next;
  const std::uint8_t index = p.next++;
  p.taken.set(index);
  return std::uint32_t{index} << 16 | p.port;
}

std::uint32_t QpNumbers::take() {
  const llp::Guard guard(mutex_);
  return take_from(with_room());
}

// The UDP port is bound when the first QP asks for datagrams: a process without any has no socket for them.
bool QpNumbers::has_udp(Port& p) {
  if (p.fd < 0) return false;
  if (p.udp_state == Port::Udp::unknown) {
    const int error = llp::UdpSocket::open(p.port, &p.udp);
    if (error == 0) p.udp_state = Port::Udp::ours;
    // Any other error may be over the next time.
    if (error == EADDRINUSE) p.udp_state = Port::Udp::refused;
  }
  return p.udp_state == Port::Udp::ours;
}

std::uint32_t QpNumbers::take_datagram() {
  const llp::Guard guard(mutex_);
  for (Port& p : ports_)
    if (!p.taken.all() && has_udp(p)) return take_from(p);
  for (int i = 0; i < kTries; ++i) {
    Port& p = add_port();
    if (has_udp(p)) return take_from(p);
    // Nobody has a number of it yet.
    const int fd = p.fd;
    const bool taken = p.udp_state == Port::Udp::refused;
    ports_.pop_back();
    if (fd >= 0) ::close(fd);
    if (!taken) break;
  }
  return 0;
}

llp::UdpSocket QpNumbers::claim_udp(std::uint16_t port) {
  const llp::Guard guard(mutex_);
  for (Port& p : ports_)
    if (p.port == port) return std::move(p.udp);
  return {};
}

void QpNumbers::give(std::uint32_t number) {
  const llp::Guard guard(mutex_);
  for (Port& p : ports_)
    if (p.port == port_of(number)) {
      assert(p.taken.test(number >> 16));
      p.taken.reset(number >> 16);
    }
}

int QpNumbers::socket_of(std::uint32_t number) {
  const llp::Guard guard(mutex_);
  for (const Port& p : ports_)
    if (p.port == port_of(number)) return p.fd;
  return -1;
}

void QpNumbers::after_fork_child() {
  for (const Port& p : ports_)
    if (p.fd >= 0) ::close(p.fd);
  ports_.clear();
  mutex_.unlock();
}

}  // namespace ewarp::verbs
