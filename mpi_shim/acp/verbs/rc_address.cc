// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/verbs/rc_address.h"

#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "mpi_shim/acp/core/text.h"

namespace ewarp::acp {
namespace {

constexpr std::uint32_t kMostReads = 16;  // more make no connection faster
constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

// IPv6 addresses of a link are good for nobody without the link's number, which differs between hosts.
bool can_be_told(const sockaddr* address) {
  if (address == nullptr) return false;
  if (address->sa_family == AF_INET) return true;
  if (address->sa_family != AF_INET6) return false;
  sockaddr_in6 in6;
  std::memcpy(&in6, address, sizeof in6);
  return !IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr);
}

sockaddr_storage copy_of(const sockaddr* address) {
  sockaddr_storage out{};
  std::memcpy(&out, address, address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  return out;
}

// The answer to one question on a channel that nobody else reads.
bool answered(rdma_event_channel* channel, rdma_cm_event_type wanted) {
  pollfd fd{.fd = channel->fd, .events = POLLIN, .revents = 0};
  rdma_cm_event* event = nullptr;
  if (poll(&fd, 1, kResolveMs) != 1 || rdma_get_cm_event(channel, &event) != 0) return false;
  const bool good = event->event == wanted;
  rdma_ack_cm_event(event);
  return good;
}

// Who binds a loopback address may be told no device; who resolves it is told one.
bool has_device(rdma_event_channel* channel, rdma_cm_id* id, sockaddr_storage address) {
  auto* at = reinterpret_cast<sockaddr*>(&address);
  if (rdma_bind_addr(id, at) != 0) return false;
  if (id->verbs != nullptr) return true;
  return rdma_resolve_addr(id, nullptr, at, kResolveMs) == 0 && answered(channel, RDMA_CM_EVENT_ADDR_RESOLVED) &&
         id->verbs != nullptr;
}

// Empty, or why the device cannot serve.
std::string serves(ibv_context* context, std::uint32_t* reads) {
  ibv_device_attr attr{};
  if (ibv_query_device(context, &attr) != 0) return failed("ibv_query_device");
  *reads = static_cast<std::uint32_t>(std::min(attr.max_qp_rd_atom, attr.max_qp_init_rd_atom));
  *reads = std::min(*reads, kMostReads);
  const bool good = attr.atomic_cap != IBV_ATOMIC_NONE && *reads != 0;
  return good ? "" : std::string(ibv_get_device_name(context->device)) + " has no atomics on reliable connections";
}

}  // namespace

std::string RcPlace::find(rdma_event_channel* channel, const std::string& name, bool prefer_loopback) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return failed("getifaddrs");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(list, freeifaddrs);
  std::string why = "no RDMA device" + (name.empty() ? " with an address" : " " + name);
  for (const bool first : {true, false})
    for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
      const bool loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
      if ((i->ifa_flags & IFF_UP) == 0 || (loopback == prefer_loopback) != first || !can_be_told(i->ifa_addr)) continue;
      if (rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) return failed("rdma_create_id");
      address = copy_of(i->ifa_addr);
      if (has_device(channel, id, address) && (name.empty() || name == ibv_get_device_name(id->verbs->device))) {
        why = serves(id->verbs, &reads);
        if (why.empty()) return {};
      }
      rdma_destroy_id(id);
      id = nullptr;
    }
  return why;
}

sockaddr_storage address_of(const Contact& contact) {
  sockaddr_storage out{};
  const auto port = htons(static_cast<std::uint16_t>(contact.qpn));
  if (std::equal(std::begin(kMapped), std::end(kMapped), contact.gid)) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = port;
    std::memcpy(&in.sin_addr, contact.gid + sizeof kMapped, sizeof in.sin_addr);
    std::memcpy(&out, &in, sizeof in);
  } else {
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = port;
    std::memcpy(&in6.sin6_addr, contact.gid, sizeof in6.sin6_addr);
    std::memcpy(&out, &in6, sizeof in6);
  }
  return out;
}

void introduce(const sockaddr_storage& address, std::uint16_t port, Contact* out) {
  if (address.ss_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &address, sizeof in);
    std::copy(std::begin(kMapped), std::end(kMapped), out->gid);
    std::memcpy(out->gid + sizeof kMapped, &in.sin_addr, sizeof in.sin_addr);
  } else {
    sockaddr_in6 in6;
    std::memcpy(&in6, &address, sizeof in6);
    std::memcpy(out->gid, &in6.sin6_addr, sizeof in6.sin6_addr);
  }
  out->qpn = Contact::kListens | ntohs(port);
}

}  // namespace ewarp::acp
