// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Threads that wait for one request: they poll for a while, then leave the work to the progress thread; without one,
// they sleep on the adapter themselves.
#include <poll.h>
#include <sched.h>

#include <chrono>

#include "mpi_shim/channel/endpoint_impl.h"

namespace ewarp::channel {
namespace {

constexpr std::uint64_t kPoliteNs = 50'000;  // who polls for longer lets others run in between
constexpr std::uint64_t kLongestSleepNs = 3'600'000'000'000;

}  // namespace

void Endpoint::Impl::wake_waiters() {
  for (Waiter* w : waiters_)
    if (!machine->pending_request(w->request)) w->woken.notify_one();
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
  const llp::Guard lock(mutex);
  while (!ended()) {
    const std::uint64_t spent = transport.now() - began;
    if (spent >= patience_ns) return false;
    sleep(request, patience_ns - spent);
  }
  return true;
}

// Once; maybe for nothing. At most so many nanoseconds.
void Endpoint::Impl::sleep(Request request, std::uint64_t ns) {
  if (progress.running())
    sleep_on_progress(request, ns);
  else
    sleep_on_adapter(request, ns);
}

void Endpoint::Impl::sleep_on_progress(Request request, std::uint64_t ns) {
  if (progress.armed() != Wake::everything) {
    arm_events(Wake::everything);
    if (transport.poll(transport.now())) return wake_waiters();
  }
  Waiter waiter{.request = request, .woken = {}};
  waiters_.push_back(&waiter);
  waiter.woken.wait_for(mutex, std::chrono::nanoseconds(std::min(ns, kLongestSleepNs)));
  [[maybe_unused]] const std::size_t erased = std::erase(waiters_, &waiter);
  assert(erased == 1);
}

void Endpoint::Impl::sleep_on_adapter(Request request, std::uint64_t ns) {
  transport.arm(Wake::everything);
  if (!transport.poll(transport.now()) && machine->pending_request(request)) {
    pollfd fds[] = {{completion_fd(), POLLIN, 0}, {connection_fd(), POLLIN, 0}};
    mutex.unlock();
    const int mine = static_cast<int>(std::min<std::uint64_t>(ns / 1'000'000 + 1, 1'000'000));
    ::poll(fds, 2, std::min(patience_ms(), mine));
    mutex.lock();
    transport.take_events();
    transport.look_at_connections();
  }
  transport.poll(transport.now());
  machine->tick();
}

}  // namespace ewarp::channel
