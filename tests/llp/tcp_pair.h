// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two ends of a TCP connection over loopback, for tests of what a socket pair does not show.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "tests/vectors/vectors.h"

namespace ewarp::test {

// fds[0] has connected to fds[1]; before_connect(fds[0]) sets its options.
template <class F>
void tcp_pair(int (&fds)[2], F before_connect) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* const name = reinterpret_cast<sockaddr*>(&at);
  assert_int_equal(bind(listener, name, size), 0);
  assert_int_equal(listen(listener, 1), 0);
  assert_int_equal(getsockname(listener, name, &size), 0);
  fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  before_connect(fds[0]);
  assert_int_equal(connect(fds[0], name, size), 0);
  fds[1] = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  assert_true(fds[1] >= 0);
  close(listener);
}

// The kernel knows the other end of this connection of 127.0.0.1, or what is left of it.
inline bool has_other_end(int fd) {
  sockaddr_in own{}, other{};
  socklen_t size = sizeof own;
  assert_int_equal(getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size), 0);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&other), &size) != 0) {
    assert_int_equal(errno, ENOTCONN);  // its reset has come, and it went with that
    return false;
  }
  std::FILE* const table = std::fopen("/proc/self/net/tcp", "re");
  assert_non_null(table);
  bool found = false;
  std::array<char, 256> line;
  unsigned from = 0, to = 0;
  while (!found && std::fgets(line.data(), line.size(), table) != nullptr)
    found = std::sscanf(line.data(), " %*u: %*x:%x %*x:%x", &from, &to) == 2 && from == ntohs(other.sin_port) &&
            to == ntohs(own.sin_port);
  std::fclose(table);
  return found;
}

}  // namespace ewarp::test
