// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/local_agreement.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "llp/fd.h"
#include "llp/local_stream.h"
#include "llp/octets.h"
#include "llp/thread.h"

namespace ewarp::llp {
namespace {

constexpr std::string_view kHello = "EWARPLM1", kTaken = "taken", kBegin = "begin";
constexpr int kBacklog = 4;
constexpr int kMostStrange = 16;

// 16 octets of the address (IPv4 mapped into IPv6), 2 of the port.
using End = std::array<std::byte, 18>;

bool end_of(const sockaddr_storage& a, End* end) {
  *end = {};
  if (a.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(a);
    (*end)[10] = (*end)[11] = std::byte{0xff};
    std::memcpy(end->data() + 12, &in.sin_addr, 4);
    std::memcpy(end->data() + 16, &in.sin_port, 2);
    return true;
  }
  if (a.ss_family != AF_INET6) return false;
  const auto& in = reinterpret_cast<const sockaddr_in6&>(a);
  std::memcpy(end->data(), &in.sin6_addr, 16);
  std::memcpy(end->data() + 16, &in.sin6_port, 2);
  return true;
}

struct Name {
  sockaddr_un address{};
  socklen_t size = 0;
};

// In the abstract name space, which is the network namespace's: the initiator's end of the connection, then the
// responder's.
bool name_of(int tcp, bool initiator, Name* name) {
  sockaddr_storage own{}, peer{};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  if (getsockname(tcp, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      getpeername(tcp, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0)
    return false;
  std::array<End, 2> ends;
  if (!end_of(initiator ? own : peer, &ends[0]) || !end_of(initiator ? peer : own, &ends[1])) return false;
  constexpr std::string_view kPrefix = "etherwarp-local-", kDigits = "0123456789abcdef";
  name->address.sun_family = AF_UNIX;
  char* at = std::copy(kPrefix.begin(), kPrefix.end(), name->address.sun_path + 1);
  for (const End& end : ends)
    for (const std::byte b : end) {
      *at++ = kDigits[std::to_integer<unsigned>(b) >> 4];
      *at++ = kDigits[std::to_integer<unsigned>(b) & 15];
    }
  name->size = static_cast<socklen_t>(at - reinterpret_cast<char*>(&name->address));
  return true;
}

int make_socket() {
  return make_high_fd([] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
}

// What the kernel calls all users that have no number in our user namespace.
uid_t nobody_known() {
  static const uid_t uid = [] {
    unsigned read = 65534;
    if (FILE* const f = fopen("/proc/sys/kernel/overflowuid", "re"); f != nullptr) {
      static_cast<void>(fscanf(f, "%u", &read));
      fclose(f);
    }
    return read;
  }();
  return uid;
}

bool is_ours(int connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid() &&
         peer.uid != nobody_known();
}

// Connections of other users that are being closed, or that stay open.
std::atomic<int> strange{0};

// Another user keeps this process busy: no name is given out that he could connect to, and none of his is tried.
bool is_beset() {
  return strange.load(std::memory_order_relaxed) >= kMostStrange;
}

// A connection of another user's, who may have put descriptors into it. They end with it, and may take as long over
// that as he likes (SO_LINGER), so a thread of its own waits for them. Without a thread it stays open for good.
void close_strange(int fd) {
  const auto close_it = [](void* number) -> void* {
    ::close(static_cast<int>(reinterpret_cast<std::intptr_t>(number)));
    strange.fetch_sub(1, std::memory_order_relaxed);
    return nullptr;
  };
  strange.fetch_add(1, std::memory_order_relaxed);
  if (start_detached(close_it, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd))) != 0) ::shutdown(fd, SHUT_RDWR);
}

bool say(int connection, std::string_view word, int descriptor = -1) {
  iovec v{const_cast<char*>(word.data()), word.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr m{};
  m.msg_iov = &v;
  m.msg_iovlen = 1;
  if (descriptor >= 0) {
    m.msg_control = control.data();
    m.msg_controllen = control.size();
    cmsghdr* const c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(connection, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(word.size());
}

// Of those that came, the only one; more than one are closed.
int only_descriptor(msghdr& m) {
  int found = -1, count = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int), ++count) {
      if (found >= 0) ::close(found);
      std::memcpy(&found, reinterpret_cast<const char*>(c) + at, sizeof found);
    }
  }
  if (count > 1) ::close(std::exchange(found, -1));
  return found;
}

// What was said, and at most one descriptor with it (-1: none), which the caller closes. Empty: nothing yet; *over: and
// nothing will be.
std::string_view hear_word(int connection, std::span<char> buffer, int* descriptor, bool* over) {
  iovec v{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr m{};
  m.msg_iov = &v;
  m.msg_iovlen = 1;
  m.msg_control = control.data();
  m.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(connection, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  *descriptor = n >= 0 ? only_descriptor(m) : -1;
  *over = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
  return {buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
}

bool has_octets(int tcp) {
  std::byte octet;
  const ssize_t n = ::recv(tcp, &octet, 1, MSG_PEEK | MSG_DONTWAIT);
  return n >= 0 || (errno != EAGAIN && errno != EINTR);
}

}  // namespace

bool LocalAgreement::watch(int fd) {
  epoll_event e{};
  e.events = EPOLLIN;
  return epoll_ctl(watched_, EPOLL_CTL_ADD, fd, &e) == 0;
}

std::unique_ptr<LocalAgreement> LocalAgreement::listen(int tcp) {
  if (is_beset()) return nullptr;
  Name name;
  std::unique_ptr<LocalAgreement> a(new (std::nothrow) LocalAgreement(false));
  if (a == nullptr || !name_of(tcp, false, &name)) return nullptr;
  a->tcp_ = tcp;
  a->door_ = make_socket();
  a->watched_ = make_high_fd([] { return epoll_create1(EPOLL_CLOEXEC); });
  if (a->door_ < 0 || a->watched_ < 0 ||
      ::bind(a->door_, reinterpret_cast<const sockaddr*>(&name.address), name.size) != 0 ||
      ::listen(a->door_, kBacklog) != 0 || !a->watch(a->door_) || !a->watch(tcp))
    return nullptr;
  return a;
}

std::unique_ptr<LocalAgreement> LocalAgreement::connect(int tcp) {
  if (is_beset()) return nullptr;
  Name name;
  std::unique_ptr<LocalAgreement> a(new (std::nothrow) LocalAgreement(true));
  if (a == nullptr || !name_of(tcp, true, &name)) return nullptr;
  a->connection_ = a->watched_ = make_socket();
  if (a->connection_ < 0 || ::connect(a->connection_, reinterpret_cast<const sockaddr*>(&name.address), name.size) != 0)
    return nullptr;
  if (!is_ours(a->connection_)) {
    close_strange(std::exchange(a->connection_, -1));
    a->watched_ = -1;
    return nullptr;
  }
  int descriptor = -1;
  if (LocalMemory::create(&a->memory_, &descriptor) != 0) return nullptr;
  const bool said = say(a->connection_, kHello, descriptor);
  ::close(descriptor);
  return said ? std::move(a) : nullptr;
}

int LocalAgreement::try_out() {
  const int door = make_socket();
  if (door < 0) return errno;
  // Without a name the kernel chooses one.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  int error = 0, descriptor = -1;
  LocalMemory memory, same;
  if (::bind(door, reinterpret_cast<const sockaddr*>(&address), sizeof address.sun_family) != 0 ||
      ::listen(door, kBacklog) != 0)
    error = errno;
  if (error == 0) error = LocalMemory::create(&memory, &descriptor);
  if (error == 0) error = LocalMemory::adopt(descriptor, &same);
  if (descriptor >= 0) ::close(descriptor);
  ::close(door);
  return error;
}

LocalAgreement::LocalAgreement(bool initiator) : initiator_(initiator), process_(getpid()) {}

// Nobody comes from here on, and who has come is shown out.
void LocalAgreement::close_door() {
  if (door_ < 0) return;
  ::shutdown(door_, SHUT_RDWR);
  bool some_left = false;
  for (int i = 0; i <= kBacklog; ++i) {
    const int fd = ::accept4(door_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    some_left = fd < 0 && errno != EINVAL && errno != EAGAIN;
    if (fd < 0) break;
    is_ours(fd) ? static_cast<void>(::close(fd)) : close_strange(fd);
  }
  // Those for whom there is no descriptor go with the door, and may be of another user.
  const int door = std::exchange(door_, -1);
  some_left ? close_strange(door) : static_cast<void>(::close(door));
}

void LocalAgreement::close() {
  if (process_ != getpid()) return;  // they were closed when the child began
  close_door();
  if (watched_ >= 0 && watched_ != connection_) ::close(watched_);
  if (connection_ >= 0) ::close(connection_);
  watched_ = connection_ = -1;
  memory_ = {};
}

void LocalAgreement::close_in_child() {
  if (watched_ >= 0 && watched_ != connection_) ::close(watched_);
  for (const int fd : {door_, connection_})
    if (fd >= 0) ::close(fd);
  watched_ = door_ = connection_ = -1;
  memory_ = {};
}

// The peer is told, and nobody comes any more. The descriptors stay: somebody may still watch fd(), and where a forked
// child has them, too, close() would not end that.
LocalAgreement::Outcome LocalAgreement::fail() {
  for (const int fd : {door_, connection_})
    if (fd >= 0) ::shutdown(fd, SHUT_RDWR);
  return outcome_ = Outcome::tcp;
}

bool LocalAgreement::give_up() {
  if (outcome_ == Outcome::more && !initiator_ && memory_taken_) return false;
  if (outcome_ == Outcome::more) fail();
  return true;
}

LocalAgreement::Outcome LocalAgreement::step() {
  if (outcome_ != Outcome::more) return outcome_;
  return initiator_ ? hear() : answer();
}

// The initiator: until the responder has taken the memory.
LocalAgreement::Outcome LocalAgreement::hear() {
  std::array<char, 16> buffer;
  int descriptor;
  bool over;
  const std::string_view word = hear_word(connection_, buffer, &descriptor, &over);
  if (descriptor >= 0) ::close(descriptor);
  if (word.empty() && !over) return Outcome::more;
  if (word != kTaken || !say(connection_, kBegin)) return fail();
  return outcome_ = Outcome::local;
}

// The first that comes has to be the initiator.
LocalAgreement::Arrived LocalAgreement::accept() {
  if (connection_ >= 0) return Arrived::initiator;
  const int fd = make_high_fd([this] { return ::accept4(door_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
  if (fd < 0)
    return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED ? Arrived::nobody : Arrived::no_one_of_ours;
  if (!is_ours(fd)) {
    close_strange(fd);
    return Arrived::no_one_of_ours;
  }
  connection_ = fd;
  // Who comes later is nothing to wake up for. Said before it is closed: a forked child may have the door, too.
  epoll_ctl(watched_, EPOLL_CTL_DEL, door_, nullptr);
  close_door();
  return watch(fd) ? Arrived::initiator : Arrived::no_one_of_ours;
}

// The responder: until the initiator begins, here or by TCP.
LocalAgreement::Outcome LocalAgreement::answer() {
  // Looked at first: of an initiator that has begun here nothing comes by TCP, but its end may, after its word.
  const bool by_tcp = has_octets(tcp_);
  Arrived arrived;
  while ((arrived = accept()) == Arrived::initiator) {
    std::array<char, 16> buffer;
    int descriptor;
    bool over;
    const std::string_view word = hear_word(connection_, buffer, &descriptor, &over);
    if (word.empty() && !over) break;
    if (memory_taken_ && word == kBegin && descriptor < 0) return outcome_ = Outcome::local;
    const bool taken = !memory_taken_ && word == kHello && descriptor >= 0 &&
                       LocalMemory::adopt(descriptor, &memory_) == 0 && say(connection_, kTaken);
    if (descriptor >= 0) ::close(descriptor);
    if (!taken) return fail();
    memory_taken_ = true;
  }
  return by_tcp || arrived == Arrived::no_one_of_ours ? fail() : Outcome::more;
}

std::unique_ptr<Stream> LocalAgreement::take(std::string peer) {
  assert(outcome_ == Outcome::local && memory_);
  if (watched_ == connection_) watched_ = -1;
  return local_stream(std::exchange(connection_, -1), std::move(memory_), initiator_, std::move(peer));
}

}  // namespace ewarp::llp
