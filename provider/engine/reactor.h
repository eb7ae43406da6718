// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The background thread of the engine: sleeps in the kernel on every socket, runs timers and posted tasks, and drives
// the engine when no application thread does (docs/design/engine.md). One per process, started on first use.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace ewarp::verbs {

class Reactor {
 public:
  using Clock = std::chrono::steady_clock;

  // The thread runs from here on: 0, or why it cannot be started (EAGAIN: no thread, EMFILE: no descriptor, ENOMEM;
  // EPERM: a forked child of a process in which it ran), and then nothing has changed. The calls below start it too,
  // but where they cannot they throw std::system_error: whoever makes objects or changes states calls this first.
  virtual int start() noexcept = 0;

  // Runs task on the background thread, soon, with no lock held. Any thread.
  virtual void post(std::function<void()> task) = 0;

  // Runs task once at or after `when`, on the background thread, with no lock held. Any thread. Never returns 0.
  virtual std::uint64_t add_timer(Clock::time_point when, std::function<void()> task) = 0;
  // After return the task does not start any more (it may be running). 0 is ignored.
  virtual void cancel_timer(std::uint64_t id) = 0;

  // Calls on_ready(revents) once on the background thread when fd shows any of events (POLLIN | POLLOUT; errors
  // always). Watching an fd again replaces the former call. Any thread.
  virtual void watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> on_ready) = 0;
  // After return on_ready does not start any more (it may be running). Must precede close(fd). Any thread.
  virtual void unwatch(int fd) = 0;

 protected:
  ~Reactor() = default;
};

Reactor& reactor();

// True in a forked child of a process whose engine was running: nothing of the parent's engine may be used there.
bool forked_child();

}  // namespace ewarp::verbs
