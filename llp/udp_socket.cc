#include "llp/udp_socket.h"

#include <netinet/udp.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "llp/fd.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif

namespace ewarp::llp {
namespace {

constexpr int kReceiveBuffer = 8 << 20;  // octets; what an unprivileged process gets is net.core.rmem_max

void set(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

int new_socket(sa_family_t family) {
  return make_high_fd([=] { return ::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
}

int bind_any(int fd, sa_family_t family, std::uint16_t port) {
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  const int rc = family == AF_INET6 ? ::bind(fd, reinterpret_cast<const sockaddr*>(&v6), sizeof v6)
                                    : ::bind(fd, reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
  return rc == 0 ? 0 : errno;
}

sockaddr_in6 mapped(const sockaddr_in& v4) {
  sockaddr_in6 out{};
  out.sin6_family = AF_INET6;
  out.sin6_port = v4.sin_port;
  out.sin6_addr.s6_addr[10] = out.sin6_addr.s6_addr[11] = 0xff;
  std::memcpy(out.sin6_addr.s6_addr + 12, &v4.sin_addr, 4);
  return out;
}

in_addr v4_of(const in6_addr& a) {
  in_addr out;
  std::memcpy(&out, a.s6_addr + 12, sizeof out);
  return out;
}

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
  }

 private:
  msghdr& message_;
};

template <class T>
T value_of(const cmsghdr* c) {
  T value{};
  std::memcpy(&value, CMSG_DATA(c), std::min<std::size_t>(sizeof value, c->cmsg_len - CMSG_LEN(0)));
  return value;
}

}  // namespace

// What must be known of each datagram, and how datagrams leave: fragmented where they are longer than the path's MTU.
void prepare_udp_socket(UdpHandle socket) {
  const int fd = socket.fd;
  set(fd, IPPROTO_IP, IP_RECVTTL, 1);
  set(fd, IPPROTO_IP, IP_RECVTOS, 1);
  if (socket.v6) {
    set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    set(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
    set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
  } else {
    set(fd, IPPROTO_IP, IP_PKTINFO, 1);
  }
  set_fragmenting(socket, true);
  set(fd, IPPROTO_UDP, UDP_GRO, 1);
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBuffer, sizeof kReceiveBuffer) != 0)
    set(fd, SOL_SOCKET, SO_RCVBUF, kReceiveBuffer);
}

void set_fragmenting(UdpHandle socket, bool fragments) {
  set(socket.fd, IPPROTO_IP, IP_MTU_DISCOVER, fragments ? IP_PMTUDISC_DONT : IP_PMTUDISC_DO);
  if (socket.v6)
    set(socket.fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, fragments ? IPV6_PMTUDISC_DONT : IPV6_PMTUDISC_DO);
}

std::size_t receive_buffer(UdpHandle socket) {
  int octets = 0;
  socklen_t size = sizeof octets;
  getsockopt(socket.fd, SOL_SOCKET, SO_RCVBUF, &octets, &size);
  return static_cast<std::size_t>(std::max(octets, 0));
}

unsigned path_mtu(const sockaddr_in6& to) {
  const bool v4 = is_v4(to.sin6_addr);
  const UdpSocket s = UdpSocket::unbound(v4 ? AF_INET : AF_INET6);
  const sockaddr_in to_v4{AF_INET, to.sin6_port, v4_of(to.sin6_addr), {}};
  const int rc = v4 ? connect(s.fd(), reinterpret_cast<const sockaddr*>(&to_v4), sizeof to_v4)
                    : connect(s.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
  int mtu = 0;
  socklen_t size = sizeof mtu;
  if (rc != 0 || getsockopt(s.fd(), v4 ? int{IPPROTO_IP} : int{IPPROTO_IPV6}, v4 ? IP_MTU : IPV6_MTU, &mtu, &size) != 0)
    return 0;
  return static_cast<unsigned>(std::max(mtu, 0));
}

UdpSocket::UdpSocket(UdpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)), v6_(other.v6_) {}

UdpSocket& UdpSocket::operator=(UdpSocket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
    v6_ = other.v6_;
  }
  return *this;
}

void UdpSocket::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

UdpSocket UdpSocket::unbound(sa_family_t family) {
  UdpSocket s;
  s.fd_ = new_socket(family);
  s.v6_ = family == AF_INET6;
  return s;
}

int UdpSocket::release() {
  return std::exchange(fd_, -1);
}

int UdpSocket::open(std::uint16_t port, UdpSocket* out) {
  UdpSocket s;
  int error = 0;
  for (const sa_family_t family : {sa_family_t{AF_INET6}, sa_family_t{AF_INET}}) {
    s = {};
    s.fd_ = new_socket(family);
    s.v6_ = family == AF_INET6;
    error = s.fd_ < 0 ? errno : 0;
    if (error == 0 && s.v6_) set(s.fd_, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (error == 0) error = bind_any(s.fd_, family, port);
    if (error == 0 || error == EADDRINUSE) break;  // else: IPv6 may be switched off
  }
  if (error != 0) return error;
  prepare_udp_socket(s);
  *out = std::move(s);
  return 0;
}

int UdpSocket::open_group(std::uint16_t port, sa_family_t family, UdpSocket* out) {
  UdpSocket s;
  s.fd_ = new_socket(family);
  if (s.fd_ < 0) return errno;
  s.v6_ = family == AF_INET6;
  set(s.fd_, SOL_SOCKET, SO_REUSEADDR, 1);
  if (s.v6_) set(s.fd_, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  // Only the groups of this socket, not those of every process of the host.
  set(s.fd_, s.v6_ ? int{IPPROTO_IPV6} : int{IPPROTO_IP}, s.v6_ ? IPV6_MULTICAST_ALL : IP_MULTICAST_ALL, 0);
  if (const int error = bind_any(s.fd_, family, port)) return error;
  prepare_udp_socket(s);
  *out = std::move(s);
  return 0;
}

namespace {

int change_membership(const UdpSocket& s, const in6_addr& group, unsigned interface, bool join) {
  if (s.is_v6() == is_v4(group)) return EINVAL;
  int rc = 0;
  if (s.is_v6()) {
    const ipv6_mreq request{group, interface};
    rc = setsockopt(s.fd(), IPPROTO_IPV6, join ? IPV6_ADD_MEMBERSHIP : IPV6_DROP_MEMBERSHIP, &request, sizeof request);
  } else {
    const ip_mreqn request{v4_of(group), {}, static_cast<int>(interface)};
    rc = setsockopt(s.fd(), IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &request, sizeof request);
  }
  return rc == 0 ? 0 : errno;
}

}  // namespace

int UdpSocket::join(const in6_addr& group, unsigned interface) {
  return change_membership(*this, group, interface, true);
}

int UdpSocket::leave(const in6_addr& group, unsigned interface) {
  return change_membership(*this, group, interface, false);
}

// --- receiving ---

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
  const msghdr& m = messages_[i].msg_hdr;
  Part p;
  p.octets = Octets(memory_.get() + i * kRoom, messages_[i].msg_len);
  p.each = std::max<std::size_t>(p.octets.size(), 1);
  UdpArrival& a = p.arrival;
  a.from = slots_[i].name;
  if (a.from.sin6_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &slots_[i].name, sizeof v4);
    a.from = mapped(v4);
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
      a.to = mapped(v4).sin6_addr;
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

// --- sending ---

UdpOutbox::UdpOutbox() : vectors_(kVectors), arena_(new std::byte[kArena]) {}

bool UdpOutbox::has_room(std::size_t vectors, std::size_t arena) const {
  return count_ < kMessages && vector_count_ + vectors <= kVectors && arena_used_ + arena <= kArena;
}

void UdpOutbox::begin(const UdpDestination& to) {
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
