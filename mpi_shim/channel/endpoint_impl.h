// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What is behind an endpoint: one lock around the machine and its transport, the progress thread, and whoever waits.
//
// Threads of the application come in by a Visit each, the progress thread by Driven.
#pragma once

#include <algorithm>
#include <atomic>
#include <cassert>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "llp/annotations.h"
#include "llp/clock.h"
#include "llp/mutex.h"
#include "mpi_shim/channel/channel.h"
#include "mpi_shim/channel/core/machine.h"
#include "mpi_shim/channel/progress.h"
#include "mpi_shim/channel/published_counters.h"
#include "mpi_shim/channel/rhythm.h"
#include "mpi_shim/channel/verbs/failed.h"
#include "mpi_shim/channel/verbs/verbs_transport.h"

namespace ewarp::channel {

// Locks: `mutex` covers everything but the atomics of Progress and `helps_`; transport's descriptors and events are
// looked at without it. Each function says whether it is held.
class Endpoint::Impl final : public Driven {
 public:
  Impl(const EndpointOptions& options, const Address& address);

  // Opens the device, listens, and starts the progress thread. Takes no lock: nobody else knows of it yet.
  Refusal open() EWARP_NO_LOCK_ANALYSIS;
  // Takes the lock. Only the first call does anything.
  void close() EWARP_EXCLUDES(mutex);

  // One call of an application thread, which holds the lock. Leaving with a request that may need help, it arms the
  // events for the progress thread, unless a call like this one is usually followed by another at once.
  class EWARP_SCOPED_CAPABILITY Visit {
   public:
    explicit Visit(Impl& impl, Rhythm::Kind kind = Rhythm::Kind::other) EWARP_ACQUIRE(impl.mutex)
        : impl_(impl), kind_(kind) {
      impl_.progress.enter();
      // Before the lock: what the progress thread does with it is no pause of the application's.
      entered_at_ = impl_.transport.now();
      impl_.mutex.lock();
      at_once_ = impl_.rhythm_.enter(entered_at_, &thread_cpu_ns);
    }
    ~Visit() EWARP_RELEASE() {
      if (++impl_.unpolled_ > kMostUnpolled) impl_.poll(entered_at_);
      if (!followed() || impl_.armed_for_less()) impl_.arm();
      impl_.note_help();
      if (!impl_.waiters_.empty()) impl_.wake_waiters();
      const bool timers = impl_.transport.take_timers_changed();
      impl_.rhythm_.leave(kind_, idle_ ? entered_at_ : impl_.transport.now(), &thread_cpu_ns);
      impl_.mutex.unlock();
      impl_.progress.leave();
      if (timers) impl_.progress.wake();
    }
    // Whether the last ones of its kind were followed by another at once.
    bool followed() const EWARP_NO_LOCK_ANALYSIS { return impl_.rhythm_.followed(kind_); }
    std::uint64_t entered_at() const { return entered_at_; }
    // Whether it followed the one before at once.
    bool at_once() const { return at_once_; }
    // There was nothing to do, so it has taken no time worth a look at the clock. With large data under way it may
    // have: an adapter in software moves them in its polls.
    void was_idle() { idle_ = !impl_.needs_help(); }
    // For others to have a turn.
    void pause() EWARP_NO_LOCK_ANALYSIS {
      if (!impl_.waiters_.empty()) impl_.wake_waiters();
      impl_.mutex.unlock();
      impl_.mutex.lock();
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    // A program that goes on with messages to itself, which end without the adapter, looks there as well.
    static constexpr int kMostUnpolled = 64;
    Impl& impl_;
    Rhythm::Kind kind_;
    std::uint64_t entered_at_;
    bool at_once_ = false, idle_ = false;
  };

  // By application threads. True if something had come.
  // now: of the visit, or later.
  bool poll(std::uint64_t now, bool connections = true) EWARP_REQUIRES(mutex) {
    unpolled_ = 0;
    progress.polled();
    return transport.poll(now, connections);
  }
  // More than the adapter alone may be needed for it.
  bool large(Octets data) const { return data.size() > options.tuning.always_eager(); }
  // As Endpoint::rest().
  bool rest() EWARP_REQUIRES(mutex);
  // One more poll that found nothing, or one that begins anew. now: of the visit. True: they have followed each other
  // for long, and others need the CPU.
  bool waits_in_vain(std::uint64_t now, bool anew) EWARP_REQUIRES(mutex);
  // Looks after silent peers, now and then. now: of the visit.
  void tick(std::uint64_t now) EWARP_REQUIRES(mutex);
  // As Endpoint::wait_for(). Takes the lock.
  bool wait(Request request, Status* status, std::uint64_t patience_ns) EWARP_EXCLUDES(mutex);

  // By the progress thread, without the lock.
  void drive(bool connections) override EWARP_EXCLUDES(mutex);
  void take_events() override;
  int completion_fd() const override { return transport.completion_fd(); }
  int connection_fd() const override { return transport.connection_fd(); }
  // While another thread polls, waiting for the lock costs both of them a system call each time.
  bool needs_help() override { return helps_.load(std::memory_order_relaxed); }
  int patience_ms() override EWARP_EXCLUDES(mutex);

  const EndpointOptions options;
  mutable llp::Mutex mutex;
  VerbsTransport transport;
  PublishedCounters published;
  std::unique_ptr<Machine> machine EWARP_PT_GUARDED_BY(mutex);

 private:
  struct Waiter {
    Request request;
    std::condition_variable_any woken;
  };

  // endpoint_impl.cc: what wakes the progress thread
  void arm() EWARP_REQUIRES(mutex);
  // It relies on events, and would get too few.
  bool armed_for_less() const EWARP_REQUIRES(mutex) {
    const Wake armed = progress.armed();
    return armed != Wake::nothing && armed < machine->wake_for();
  }
  void arm_events(Wake wake) EWARP_REQUIRES(mutex);
  void note_help() EWARP_REQUIRES(mutex) {
    helps_.store(machine->wake_for() != Wake::nothing, std::memory_order_relaxed);
  }

  void look_after_peers() EWARP_REQUIRES(mutex);
  void say_counters() EWARP_REQUIRES(mutex);

  // endpoint_wait.cc
  void wake_waiters() EWARP_REQUIRES(mutex);
  void sleep(Waiter& waiter, std::uint64_t ns) EWARP_REQUIRES(mutex);
  void sleep_until_woken(Waiter& waiter, std::uint64_t ns) EWARP_REQUIRES(mutex);
  void sleep_on_progress(Waiter& waiter, std::uint64_t ns) EWARP_REQUIRES(mutex);
  void sleep_on_adapter(Waiter& waiter, std::uint64_t ns) EWARP_REQUIRES(mutex);
  void watch(Waiter& waiter, std::uint64_t ns) EWARP_REQUIRES(mutex);
  void pass_watch() EWARP_REQUIRES(mutex);

  const std::uint64_t spin_ns_;                           // how long wait() polls
  std::vector<Waiter*> waiters_ EWARP_GUARDED_BY(mutex);  // asleep
  Waiter* watcher_ EWARP_GUARDED_BY(mutex) = nullptr;     // of them: who sleeps on the adapter
  Rhythm rhythm_ EWARP_GUARDED_BY(mutex);
  int unpolled_ EWARP_GUARDED_BY(mutex) = 0;    // visits since one polled
  bool rests_ EWARP_GUARDED_BY(mutex) = false;  // somebody sleeps on what a listener does, now and then
  std::atomic<bool> helps_{false};
  std::uint64_t ticked_at_ EWARP_GUARDED_BY(mutex) = 0;
  std::uint64_t vain_since_ EWARP_GUARDED_BY(mutex) = 0;
  bool closed_ = false;

 public:
  Progress progress;  // ends first: its thread uses everything else
};

}  // namespace ewarp::channel
