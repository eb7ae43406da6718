// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/udp_outbox.h"

#include <netinet/udp.h>

#include <cassert>
#include <cerrno>
#include <cstring>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

namespace ewarp::llp {
namespace {

// Appends ancillary data to a message whose msg_controllen grows with it.
class Control {
 public:
  explicit Control(msghdr& m) : message_(m) {}
  template <class T>
  void add(int level, int type, const T& value) {
    auto* c = reinterpret_cast<cmsghdr*>(static_cast<std::byte*>(message_.msg_control) + message_.msg_controllen);
    c->cmsg_level = level;
    c->cmsg_type = type;
    c->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(c), &value, sizeof value);
    message_.msg_controllen += CMSG_SPACE(sizeof value);
    assert(message_.msg_controllen <= UdpOutbox::kControl);
  }

 private:
  msghdr& message_;
};

}  // namespace

UdpOutbox::UdpOutbox() : vectors_(kVectors), arena_(new std::byte[kArena]) {}

bool UdpOutbox::has_room(std::size_t vectors, std::size_t arena) const {
  return count_ < kMessages && vector_count_ + vectors <= kVectors && arena_used_ + arena <= kArena;
}

void UdpOutbox::begin(const UdpDestination& to) {
  assert(count_ < kMessages);
  messages_[count_++] = {&to, vector_count_, vector_count_, 0};
}

MutableOctets UdpOutbox::append(std::size_t n) {
  assert(arena_used_ + n <= kArena);
  std::byte* at = arena_.get() + arena_used_;
  arena_used_ += n;
  append(at, n);
  return {at, n};
}

void UdpOutbox::append(const void* memory, std::size_t n) {
  assert(count_ > 0);
  Message& m = messages_[count_ - 1];
  m.octets += n;
  auto* at = static_cast<std::byte*>(const_cast<void*>(memory));
  if (m.end > m.first) {
    iovec& last = vectors_[m.end - 1];
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == at) {
      last.iov_len += n;
      return;
    }
  }
  if (n == 0) return;
  assert(vector_count_ < kVectors);
  vectors_[vector_count_++] = {at, n};
  m.end = vector_count_;
}

void UdpOutbox::undo() {
  assert(count_ > 0);
  vector_count_ = messages_[--count_].first;
}

void UdpOutbox::clear() {
  count_ = vector_count_ = arena_used_ = 0;
}

// How many datagrams from here on the kernel can cut out of one: to one destination, equally long, the last perhaps
// shorter.
std::size_t UdpOutbox::run_length(std::size_t from) const {
  constexpr std::size_t kSegments = 64, kOctets = 65000, kPieces = 1000;
  const Message& first = messages_[from];
  if (first.to->segment_limit == 0 || first.octets > first.to->segment_limit) return 1;
  std::size_t n = 1, octets = first.octets;
  while (from + n < count_ && n < kSegments) {
    const Message& m = messages_[from + n];
    const bool same = m.to == first.to || std::memcmp(m.to, first.to, sizeof *m.to) == 0;
    if (!same || m.octets > first.octets || octets + m.octets > kOctets || m.end - first.first > kPieces) break;
    octets += m.octets;
    ++n;
    if (m.octets < first.octets) break;
  }
  return n;
}

void UdpOutbox::put(UdpHandle socket, unsigned slot, std::size_t from, std::size_t messages) {
  const UdpDestination& d = *messages_[from].to;
  const bool v4 = is_v4(d.to.sin6_addr);
  Slot& s = slots_[slot];
  s.messages = messages;
  msghdr& m = headers_[slot].msg_hdr;
  m = {};
  if (socket.v6) {
    s.name.v6 = d.to;
    m.msg_namelen = sizeof s.name.v6;
  } else {
    s.name.v4 = {AF_INET, d.to.sin6_port, v4_of(d.to.sin6_addr), {}};
    m.msg_namelen = sizeof s.name.v4;
  }
  m.msg_name = &s.name;
  m.msg_iov = vectors_.data() + messages_[from].first;
  m.msg_iovlen = messages_[from + messages - 1].end - messages_[from].first;
  m.msg_control = s.control;
  Control control(m);
  if (!IN6_IS_ADDR_UNSPECIFIED(&d.source) || d.interface != 0) {
    if (socket.v6)
      control.add(IPPROTO_IPV6, IPV6_PKTINFO, in6_pktinfo{d.source, d.interface});
    else
      control.add(IPPROTO_IP, IP_PKTINFO, in_pktinfo{static_cast<int>(d.interface), v4_of(d.source), {}});
  }
  const int tos = d.tos, ttl = d.ttl;
  if (tos != 0) control.add(v4 ? int{IPPROTO_IP} : int{IPPROTO_IPV6}, v4 ? IP_TOS : IPV6_TCLASS, tos);
  if (ttl != 0) control.add(v4 ? int{IPPROTO_IP} : int{IPPROTO_IPV6}, v4 ? IP_TTL : IPV6_HOPLIMIT, ttl);
  if (messages > 1) control.add(IPPROTO_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(messages_[from].octets));
  if (m.msg_controllen == 0) m.msg_control = nullptr;
}

unsigned UdpOutbox::fill(UdpHandle socket, std::size_t from, bool segments) {
  unsigned slots = 0;
  while (from < count_) {
    const std::size_t n = segments ? run_length(from) : 1;
    put(socket, slots++, from, n);
    from += n;
  }
  return slots;
}

std::size_t UdpOutbox::send(UdpHandle socket, int* error) {
  std::size_t done = 0;
  bool segments = !segments_refused_;
  *error = 0;
  while (done < count_) {
    const unsigned slots = fill(socket, done, segments);
    int n = 0;
    if (slots == 1) {
      n = sendmsg(socket.fd, &headers_[0].msg_hdr, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -1 : 1;
    } else {
      n = sendmmsg(socket.fd, headers_.data(), slots, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    const int why = errno;
    for (int i = 0; i < n; ++i) done += slots_[static_cast<std::size_t>(i)].messages;
    if (n > 0) continue;
    if (why == EINTR) continue;
    // What the kernel does not split, it still takes one by one.
    if (slots_[0].messages > 1 && why != EAGAIN && why != EFAULT) {
      segments = false;
      if (why == EIO || why == EOPNOTSUPP) segments_refused_ = true;
      continue;
    }
    *error = why;
    break;
  }
  return done;
}

}  // namespace ewarp::llp
