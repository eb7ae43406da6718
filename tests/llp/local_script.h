// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An end of an agreement on a local stream that is played by a script (docs/protocol/local.md, section 2).
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>

namespace ewarp::test {

// Where the responder of a connection over IPv4 listens.
struct LocalName {
  explicit LocalName(int initiators_end) {
    std::string name = "etherwarp-local-";
    for (const bool initiators : {true, false}) {
      sockaddr_in in{};
      socklen_t n = sizeof in;
      auto* const at = reinterpret_cast<sockaddr*>(&in);
      initiators ? getsockname(initiators_end, at, &n) : getpeername(initiators_end, at, &n);
      char text[64];
      std::snprintf(text, sizeof text, "00000000000000000000ffff%08x%04x", ntohl(in.sin_addr.s_addr),
                    ntohs(in.sin_port));
      name += text;
    }
    address.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), address.sun_path + 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{};
  socklen_t size = 0;
};

// Connects there, as anybody may who knows the name. -1: nobody listens, or too many wait.
inline int come(const LocalName& name) {
  const int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (connect(s, name.get(), name.size) == 0) return s;
  close(s);
  return -1;
}

// Listens there. -1: somebody does.
inline int wait_for_an_initiator(const LocalName& name) {
  const int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (bind(s, name.get(), name.size) == 0 && listen(s, 4) == 0) return s;
  close(s);
  return -1;
}

// With as many files, two at the most.
inline bool say(int socket, const std::string& word, std::span<const int> files = {}) {
  iovec v{const_cast<char*>(word.data()), word.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
  msghdr m{};
  m.msg_iov = &v;
  m.msg_iovlen = 1;
  if (!files.empty()) {
    m.msg_control = control.data();
    m.msg_controllen = CMSG_SPACE(files.size_bytes());
    cmsghdr* const h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(files.size_bytes());
    std::memcpy(CMSG_DATA(h), files.data(), files.size_bytes());
  }
  return sendmsg(socket, &m, MSG_NOSIGNAL) == static_cast<ssize_t>(word.size());
}

// The next word, which may take a while; empty: the other end has closed, or nothing comes.
inline std::string hear(int socket, int milliseconds = 20'000) {
  pollfd p{socket, POLLIN, 0};
  std::array<char, 64> word;
  if (poll(&p, 1, milliseconds) != 1) return {};
  const ssize_t n = recv(socket, word.data(), word.size(), MSG_DONTWAIT);
  return {word.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
}

// The other end has closed, or does so within this time, with nothing said before.
inline bool is_shown_the_door(int socket, int milliseconds = 20'000) {
  pollfd p{socket, POLLIN, 0};
  char octet;
  if (poll(&p, 1, milliseconds) != 1) return false;
  const ssize_t n = recv(socket, &octet, 1, MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN);
}

}  // namespace ewarp::test
