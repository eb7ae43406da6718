// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Readiness of many fds for one thread that sleeps. On io_uring (one-shot polls on a ring of its own) or, where
// io_uring is forbidden, on epoll.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace ewarp::llp {

// Threading: one thread arms, disarms and waits, always the same one (io_uring requests belong to the task that made
// them); wake() may be called by any thread and by a signal handler.
class Watcher {
 public:
  virtual ~Watcher() = default;

  // One-shot: wait() reports `token` once when fd shows any of events (POLLIN, POLLOUT; errors and hang-ups always).
  // An fd is armed at most once at a time; arming again replaces the events and the token.
  virtual void arm(int fd, std::uint32_t events, std::uint64_t token) = 0;
  // Nothing is reported for fd from the next wait() on. Call it before the fd is closed; on io_uring the kernel lets go
  // of the file in the next wait() only (no FIN before that, unless the socket was shut down).
  virtual void disarm(int fd) = 0;

  struct Ready {
    std::uint64_t token;
    std::uint32_t events;  // POLLIN | POLLOUT | POLLERR | POLLHUP
  };
  // Sleeps until something is ready, wake() was called, or the timeout passed (negative: no timeout, 0: do not sleep).
  // Returns how many of `out` were filled; what found no room is reported by the next call. Signals do not end it:
  // io_uring causes EINTR without one, when another ring of this thread is torn down.
  // An fd that cannot be watched (closed) is reported with POLLERR. Requires: out is not empty.
  virtual std::size_t wait(std::span<Ready> out, std::chrono::nanoseconds timeout) = 0;
  // Ends the current or the next wait(). Cheap when a wake-up is already pending.
  virtual void wake() = 0;
  virtual const char* name() const = 0;  // "io_uring" or "epoll"

  // Every fd of the watcher, so that a forked child can close them.
  virtual void close_in_child() = 0;
};

// use_io_uring: try it first; on refusal falls back to epoll and says why in *why_not. Null when there is no fd left
// even for that. Any thread may call it: the first wait() decides which one is the waiting thread.
// on_fall_back: io_uring was given, and then fails for good (a seccomp filter that came later). The watcher goes on as
// one on epoll, with all that was armed; the waiting thread calls this once, with the reason.
std::unique_ptr<Watcher> make_watcher(bool use_io_uring, std::string* why_not = nullptr,
                                      std::function<void(const std::string& why)> on_fall_back = {});

}  // namespace ewarp::llp
