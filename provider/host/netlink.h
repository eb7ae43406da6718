// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The part of RDMA netlink that rdma-core uses to find devices (<rdma/rdma_netlink.h>): answered for ours, merged with
// the kernel's where it has some.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "llp/mutex.h"
#include "llp/octets.h"

namespace ewarp::host {

// One socket. Threading: any thread; the lock never covers a wait.
class NetlinkSession {
 public:
  // real: fd is a NETLINK_RDMA socket, so the kernel has its say; else a placeholder that nothing is sent on.
  NetlinkSession(int fd, bool real) : fd_(fd), real_(real) {}

  ssize_t send(const msghdr* message, int flags);
  ssize_t receive(msghdr* message, int flags);

 private:
  using Datagram = std::vector<std::byte>;
  // True: answered here. False: the kernel's.
  bool answer(Octets request);
  void queue(std::vector<Datagram> replies);
  int take_dump_from_kernel(int flags);
  ssize_t deliver(msghdr* message, int flags) EWARP_REQUIRES(mutex_);

  const int fd_;
  const bool real_;
  llp::Mutex mutex_;
  std::deque<Datagram> replies_ EWARP_GUARDED_BY(mutex_);
  bool dumping_ EWARP_GUARDED_BY(mutex_) = false;  // the kernel's answer to a dump of devices is awaited
  std::uint32_t dump_sequence_ EWARP_GUARDED_BY(mutex_) = 0;
};

// socket(AF_NETLINK, type, NETLINK_RDMA): fd or -errno. The errno is the kernel's where no netlink socket is to be had
// at all (libibverbs then looks in sysfs).
int open_netlink(int type);

}  // namespace ewarp::host
