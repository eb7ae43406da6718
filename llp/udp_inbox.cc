// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/udp_inbox.h"

#include <netinet/udp.h>

#include <cassert>
#include <cerrno>
#include <cstring>

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace ewarp::llp {
namespace {

template <class T>
T value_of(const cmsghdr* c) {
  T value{};
  std::memcpy(&value, CMSG_DATA(c), std::min<std::size_t>(sizeof value, c->cmsg_len - CMSG_LEN(0)));
  return value;
}

}  // namespace

UdpInbox::UdpInbox() : memory_(new std::byte[kMost * kRoom]), slots_(kMost), messages_(kMost) {}

void UdpInbox::prepare(unsigned i) {
  Slot& s = slots_[i];
  s.vector = {memory_.get() + i * kRoom, kRoom};
  msghdr& m = messages_[i].msg_hdr;
  m = {};
  m.msg_name = &s.name;
  m.msg_namelen = sizeof s.name;
  m.msg_iov = &s.vector;
  m.msg_iovlen = 1;
  m.msg_control = s.control;
  m.msg_controllen = sizeof s.control;
}

int UdpInbox::receive(UdpHandle socket, unsigned most) {
  most = std::min(most, kMost);
  count_ = 0;
  for (unsigned i = 0; i < most; ++i) prepare(i);
  if (most == 1) {
    const ssize_t n = recvmsg(socket.fd, &messages_[0].msg_hdr, MSG_DONTWAIT);
    if (n < 0) return -errno;
    messages_[0].msg_len = static_cast<unsigned>(n);
    count_ = 1;
    return 1;
  }
  const int n = recvmmsg(socket.fd, messages_.data(), most, MSG_DONTWAIT, nullptr);
  if (n < 0) return -errno;
  count_ = static_cast<unsigned>(n);
  return n;
}

UdpInbox::Part UdpInbox::part_of(unsigned i) const {
  assert(i < count_ && messages_[i].msg_len <= kRoom);
  const msghdr& m = messages_[i].msg_hdr;
  Part p;
  p.octets = Octets(memory_.get() + i * kRoom, messages_[i].msg_len);
  p.each = std::max<std::size_t>(p.octets.size(), 1);
  UdpArrival& a = p.arrival;
  a.from = slots_[i].name;
  if (a.from.sin6_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &slots_[i].name, sizeof v4);
    a.from = v4_mapped(v4);
  }
  for (const cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&m), const_cast<cmsghdr*>(c))) {
    if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
      const auto info = value_of<in6_pktinfo>(c);
      a.to = info.ipi6_addr;
      a.interface = info.ipi6_ifindex;
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
      const auto info = value_of<in_pktinfo>(c);
      sockaddr_in v4{};
      v4.sin_addr = info.ipi_addr;
      a.to = v4_mapped(v4).sin6_addr;
      a.interface = static_cast<unsigned>(info.ipi_ifindex);
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
      a.tos = value_of<std::uint8_t>(c);
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
      a.tos = static_cast<std::uint8_t>(value_of<int>(c));
    } else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL) ||
               (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT)) {
      a.ttl = static_cast<std::uint8_t>(value_of<int>(c));
    } else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
      p.each = static_cast<std::size_t>(std::max(value_of<int>(c), 1));
    }
  }
  return p;
}

}  // namespace ewarp::llp
