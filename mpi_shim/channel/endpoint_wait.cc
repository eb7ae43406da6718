// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Threads that wait for one request: they poll for a while, then leave the work to the progress thread. Without one,
// one of them at a time sleeps on the adapter (the watcher), and the others until somebody wakes them. An event wakes
// all that sleep on a descriptor, but whoever runs first takes it, and the others would find nothing there and sleep
// on.
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

#include "mpi_shim/channel/endpoint_impl.h"

namespace ewarp::channel {
namespace {

constexpr std::uint64_t kPoliteNs = 50'000;  // who polls for longer lets others run in between
constexpr std::uint64_t kLongestSleepNs = 3'600'000'000'000;

}  // namespace

void Endpoint::Impl::wake_waiters() {
  for (Waiter* w : waiters_) {
    if (machine->pending_request(w->request)) continue;
    w == watcher_ ? progress.wake() : w->woken.notify_one();
  }
}

// By who leaves, and may have been the watcher.
void Endpoint::Impl::pass_watch() {
  if (!progress.running() && watcher_ == nullptr && !waiters_.empty()) waiters_.front()->woken.notify_one();
}

bool Endpoint::Impl::wait(Request request, Status* status, std::uint64_t patience_ns) {
  const std::uint64_t began = transport.now();
  const auto ended = [&]() EWARP_REQUIRES(mutex) {
    if (machine->pending_request(request)) return false;
    *status = machine->test(request).value_or(Status{.error = Error::cancelled});
    return true;
  };
  {
    Visit visit(*this);
    std::uint64_t now = began;
    for (bool again = false;; again = true, visit.pause()) {
      if (ended() || (poll(now, again) && ended())) return true;
      now = transport.now();
      const std::uint64_t spent = now - began;
      if (spent >= patience_ns) return false;
      if (spent >= spin_ns_) break;
      if (spent >= kPoliteNs) sched_yield();
    }
  }
  Waiter waiter{.request = request, .woken = {}};
  const llp::Guard lock(mutex);
  bool in_time = true;
  while (in_time && !ended()) {
    const std::uint64_t spent = transport.now() - began;
    in_time = spent < patience_ns;
    if (in_time) sleep(waiter, patience_ns - spent);
  }
  pass_watch();
  return in_time;
}

// Once; maybe for nothing. At most so many nanoseconds.
void Endpoint::Impl::sleep(Waiter& waiter, std::uint64_t ns) {
  if (progress.running())
    sleep_on_progress(waiter, ns);
  else if (watcher_ == nullptr)
    sleep_on_adapter(waiter, ns);
  else
    sleep_until_woken(waiter, ns);
}

void Endpoint::Impl::sleep_until_woken(Waiter& waiter, std::uint64_t ns) {
  waiters_.push_back(&waiter);
  waiter.woken.wait_for(mutex, std::chrono::nanoseconds(std::min(ns, kLongestSleepNs)));
  [[maybe_unused]] const std::size_t erased = std::erase(waiters_, &waiter);
  assert(erased == 1);
}

void Endpoint::Impl::sleep_on_progress(Waiter& waiter, std::uint64_t ns) {
  if (progress.armed() != Wake::everything) {
    arm_events(Wake::everything);
    if (transport.poll(transport.now())) return wake_waiters();
  }
  sleep_until_woken(waiter, ns);
}

void Endpoint::Impl::sleep_on_adapter(Waiter& waiter, std::uint64_t ns) {
  transport.arm(Wake::everything);
  if (!transport.poll(transport.now()) && machine->pending_request(waiter.request)) {
    watch(waiter, ns);
    transport.take_events();
    transport.look_at_connections();
  }
  transport.poll(transport.now());
  look_after_peers();
  wake_waiters();
}

void Endpoint::Impl::watch(Waiter& waiter, std::uint64_t ns) {
  waiters_.push_back(&waiter);
  watcher_ = &waiter;
  pollfd fds[] = {{completion_fd(), POLLIN, 0}, {connection_fd(), POLLIN, 0}, {progress.wake_fd(), POLLIN, 0}};
  mutex.unlock();
  const int mine = static_cast<int>(std::min<std::uint64_t>(ns / 1'000'000 + 1, 1'000'000));
  ::poll(fds, 3, std::min(patience_ms(), mine));
  mutex.lock();
  watcher_ = nullptr;
  std::erase(waiters_, &waiter);
  if (fds[2].revents != 0) progress.take_wake();
}

}  // namespace ewarp::channel
