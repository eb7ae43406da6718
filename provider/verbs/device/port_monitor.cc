// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/device/port_monitor.h"

#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "llp/fd.h"
#include "llp/mutex.h"
#include "provider/base/log.h"
#include "provider/engine/reactor.h"
#include "provider/verbs/device/context.h"
#include "provider/verbs/device/known_interfaces.h"

namespace ewarp::verbs {
namespace {

constexpr std::uint64_t kPort = 1;

int open_route_socket() {
  const int fd =
      llp::make_high_fd([] { return ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE); });
  if (fd < 0) return -errno;
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  const int error = errno;
  ::close(fd);
  return -error;
}

}  // namespace

PortMonitor& port_monitor() {
  static auto* monitor = new PortMonitor;  // outlives the background thread
  return *monitor;
}

bool PortMonitor::Port::operator==(const Port& other) const {
  return active == other.active &&
         std::equal(gids.begin(), gids.end(), other.gids.begin(), other.gids.end(),
                    [](const ibv_gid& a, const ibv_gid& b) { return std::memcmp(a.raw, b.raw, sizeof a.raw) == 0; });
}

PortMonitor::Port PortMonitor::look(const Context& context) {
  Port port;
  ibv_port_attr attr{};
  port.active = context.device().query_port(kPort, &attr, sizeof attr) == 0 && attr.state == IBV_PORT_ACTIVE;
  port.gids = context.device().gids();
  return port;
}

void PortMonitor::add(Context& context) {
  const llp::Guard lock(mutex_);
  // The socket first: what changes between the two is then looked at again.
  if (fd_ < 0 && (open() || forked_child())) known_interfaces().look();
  ports_.emplace(&context, look(context));
}

void PortMonitor::remove(Context& context) {
  const llp::Guard lock(mutex_);
  ports_.erase(&context);
}

bool PortMonitor::open() {
  // The device opens all the same; the next one tries again.
  if (const int error = reactor().start(); error != 0) {
    log::debug("no port events: {}", std::strerror(error));
    return false;
  }
  fd_ = open_route_socket();
  if (fd_ < 0) {
    log::debug("no port events: {}", std::strerror(-fd_));
    return false;
  }
  watch();
  return true;
}

void PortMonitor::watch() {
  reactor().watch(fd_, POLLIN, [this](std::uint32_t) { changed(); });
}

// What the messages say is not read: several may be lost (ENOBUFS), and the interfaces themselves know better.
void PortMonitor::changed() {
  const llp::Guard lock(mutex_);
  if (fd_ < 0) return;
  std::array<std::byte, 8192> sink;
  while (::recv(fd_, sink.data(), sink.size(), 0) >= 0 || errno == ENOBUFS || errno == EINTR) {
  }
  // Who cannot ask the kernel knows nothing of the ports: another look will follow, and compare().
  if (known_interfaces().look()) compare_now();
  watch();
}

void PortMonitor::compare() {
  const llp::Guard lock(mutex_);
  if (fd_ >= 0) compare_now();
}

void PortMonitor::compare_now() {
  for (auto& [context, before] : ports_) {
    Port now = look(*context);
    if (now == before) continue;
    if (now.active != before.active) {
      log::debug("{}: port {}", context->device().name(), now.active ? "active" : "down");
      context->raise(now.active ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, kPort);
    } else {
      context->raise(IBV_EVENT_GID_CHANGE, kPort);
    }
    before = std::move(now);
  }
}

}  // namespace ewarp::verbs
