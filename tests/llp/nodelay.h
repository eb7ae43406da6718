// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether the connections of this process send at once.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>

#include "tests/vectors/vectors.h"

namespace ewarp::test {

// At least `least` TCP sockets of this process are connected, and each has TCP_NODELAY (RFC 5044 section 5.1).
inline void expect_nodelay(int least) {
  int connected = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    int protocol = 0, on = 0;
    socklen_t size = sizeof protocol;
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 || protocol != IPPROTO_TCP) continue;
    tcp_info info{};
    size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_state != TCP_ESTABLISHED) continue;
    ++connected;
    size = sizeof on;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
    if (on == 0) fail_msg("a connection waits for more: no TCP_NODELAY");
  }
  if (connected < least) fail_msg("%d connections, at least %d wanted", connected, least);
}

}  // namespace ewarp::test
