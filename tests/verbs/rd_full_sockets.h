// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// sendmsg() and sendmmsg() of this program, which find no room while they are told to. Include it in one source of a
// program.
#pragma once

#include <dlfcn.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>

namespace ewarp::test {

inline std::atomic<bool> no_room{false};
inline std::atomic<std::size_t> longest_refused{0};  // octets

// While it is there no socket has room.
struct FullSockets {
  FullSockets() {
    longest_refused = 0;
    no_room = true;
  }
  ~FullSockets() { no_room = false; }
};

inline ssize_t refuse(const msghdr& message) {
  std::size_t octets = 0;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) octets += message.msg_iov[i].iov_len;
  longest_refused = std::max(longest_refused.load(), octets);
  errno = EAGAIN;
  return -1;
}

}  // namespace ewarp::test

extern "C" [[gnu::visibility("default")]] ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static const auto real = reinterpret_cast<decltype(&sendmsg)>(dlsym(RTLD_NEXT, "sendmsg"));
  return ewarp::test::no_room ? ewarp::test::refuse(*message) : real(fd, message, flags);
}

extern "C" [[gnu::visibility("default")]] int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  static const auto real = reinterpret_cast<decltype(&sendmmsg)>(dlsym(RTLD_NEXT, "sendmmsg"));
  if (!ewarp::test::no_room) return real(fd, messages, count, flags);
  for (unsigned i = 0; i < count; ++i) ewarp::test::refuse(messages[i].msg_hdr);
  return -1;
}
