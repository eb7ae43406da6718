// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the scripted peer's octets go through: a socket, or rings in shared memory (docs/protocol/local.md). The rings
// are written and read by code of its own, that shares no misreadings with llp::LocalStream.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "llp/local_memory.h"

namespace ewarp::wire {

class PeerEnd {
 public:
  virtual ~PeerEnd() = default;
  // Something can be taken, the end of the stream too.
  virtual bool is_readable(int milliseconds) = 0;
  virtual bool is_writable(int milliseconds) = 0;
  // TCP: the kernel has nothing of the other side's any more. Else false.
  virtual bool is_forgotten() const { return false; }
  // Octets; 0: the other side has ended its direction; -1, errno: none now (EAGAIN), or the stream ended otherwise.
  virtual ssize_t take(std::byte* to, std::size_t octets) = 0;
  virtual ssize_t give(const std::byte* from, std::size_t octets) = 0;
  // Octets that have come and were not taken, and that were given and not read.
  virtual int unread() const = 0;
  virtual int unsent() const = 0;
  virtual void shut_down() = 0;
  virtual void close() = 0;
  // TCP: the connection is reset. Else as close().
  virtual void reset() = 0;
};

// Takes the fd; -1: nothing comes and nothing goes.
std::unique_ptr<PeerEnd> socket_end(int fd);
// The end that made the memory; fd: the AF_UNIX socket beside it. Takes both.
std::unique_ptr<PeerEnd> ring_end(int fd, llp::LocalMemory memory);

}  // namespace ewarp::wire
