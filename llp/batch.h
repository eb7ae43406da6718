// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Non-blocking sendmsg and recvmsg on several sockets, in one system call where io_uring is there.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <span>
#include <string>

namespace ewarp::llp {

// Threading: one thread at a time, any thread (nothing that is submitted outlives the call: MSG_DONTWAIT).
class Batch {
 public:
  virtual ~Batch() = default;

  struct Op {
    int fd;
    bool send;
    msghdr* msg;
    ssize_t result;  // octets, or -errno (-EAGAIN: nothing to read, no room to write)
  };
  // Runs all of them; order between different fds is free. Flags used: MSG_DONTWAIT, MSG_NOSIGNAL.
  // A few ops are plain system calls, which are cheaper than a ring. A msg of one piece without name and control data
  // is received by recv(): its msg_flags stay as they were.
  virtual void run(std::span<Op> ops) = 0;
  virtual const char* name() const = 0;  // "io_uring" or "system calls"
  // Every fd of the batch, so that a forked child can close them.
  virtual void close_in_child() = 0;
};

// use_io_uring: try it first; on refusal falls back to plain system calls and says why in *why_not. Never null.
std::unique_ptr<Batch> make_batch(bool use_io_uring, std::string* why_not = nullptr);

}  // namespace ewarp::llp
