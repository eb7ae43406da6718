// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A network of the process's own, with nothing but loopback: what a target connects to or listens on is nobody else's.
#pragma once

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

namespace ewarp::fuzz {

// False: the kernel allows none. Requires: the process has one thread.
inline bool enter_own_network() {
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP;
  const bool up = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &loopback) == 0;
  close(fd);
  return up;
}

}  // namespace ewarp::fuzz
