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
#include <mutex>
#include <string>
#include <vector>

#include "mpi_shim/channel/channel.h"
#include "mpi_shim/channel/core/machine.h"
#include "mpi_shim/channel/progress.h"
#include "mpi_shim/channel/published_counters.h"
#include "mpi_shim/channel/rhythm.h"
#include "mpi_shim/channel/verbs/verbs_transport.h"

namespace ewarp::channel {

// Locks: `mutex` covers everything but the atomics of Progress and `helps_`. Functions want it held unless they say
// otherwise.
class Endpoint::Impl final : public Driven {
 public:
  Impl(const EndpointOptions& options, const Address& address);

  // Opens the device, listens, and starts the progress thread. What was refused and why; empty if nothing was. Takes no
  // lock: nobody else knows of it yet.
  std::string open();
  // Takes the lock. Only the first call does anything.
  void close();

  // One call of an application thread, which holds the lock. Leaving with a request that may need help, it arms the
  // events for the progress thread, unless a call like this one is usually followed by another at once.
  class Visit {
   public:
    explicit Visit(Impl& impl, Rhythm::Kind kind = Rhythm::Kind::other) : impl_(impl), kind_(kind) {
      impl_.progress.enter();
      // Before the lock: what the progress thread does with it is no pause of the application's.
      entered_at_ = impl_.transport.now();
      impl_.mutex.lock();
      at_once_ = impl_.rhythm_.enter(entered_at_);
    }
    ~Visit() {
      if (++impl_.unpolled_ > kMostUnpolled) impl_.poll();
      if (!followed() || impl_.armed_for_less()) impl_.arm();
      impl_.note_help();
      if (!impl_.waiters_.empty()) impl_.wake_waiters();
      const bool timers = impl_.transport.take_timers_changed();
      impl_.rhythm_.leave(kind_, idle_ ? entered_at_ : impl_.transport.now());
      impl_.mutex.unlock();
      impl_.progress.leave();
      if (timers) impl_.progress.wake();
    }
    // Whether the last one of its kind was followed by another at once.
    bool followed() const { return impl_.rhythm_.followed(kind_); }
    std::uint64_t entered_at() const { return entered_at_; }
    // Whether it followed the one before at once.
    bool at_once() const { return at_once_; }
    // There was nothing to do, so it has taken no time worth a look at the clock.
    void was_idle() { idle_ = true; }
    // For others to have a turn.
    void pause() {
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
  bool poll(bool connections = true) {
    unpolled_ = 0;
    progress.polled();
    return transport.poll(connections);
  }
  // More than the adapter alone may be needed for it.
  bool large(Octets data) const { return data.size() > options.tuning.always_eager(); }
  // As Endpoint::rest().
  bool rest();
  // One more poll that found nothing, or one that begins anew. now: of the visit. True: they have followed each other
  // for long, and others need the CPU.
  bool waits_in_vain(std::uint64_t now, bool anew);
  // Looks after silent peers, now and then. now: of the visit.
  void tick(std::uint64_t now);
  // As Endpoint::wait_for(). Takes the lock.
  bool wait(Request request, Status* status, std::uint64_t patience_ns);

  // By the progress thread, without the lock.
  void drive(bool connections) override;
  void take_events() override;
  int completion_fd() const override { return transport.completion_fd(); }
  int connection_fd() const override { return transport.connection_fd(); }
  // While another thread polls, waiting for the lock costs both of them a system call each time.
  bool needs_help() override { return helps_.load(std::memory_order_relaxed); }
  int patience_ms() override;

  const EndpointOptions options;
  mutable std::mutex mutex;
  VerbsTransport transport;
  PublishedCounters published;
  std::unique_ptr<Machine> machine;

 private:
  struct Waiter {
    Request request;
    std::condition_variable woken;
  };

  // endpoint_impl.cc: what wakes the progress thread
  void arm();
  // It relies on events, and would get too few.
  bool armed_for_less() const {
    const Wake armed = progress.armed();
    return armed != Wake::nothing && armed < machine->wake_for();
  }
  void arm_events(Wake wake);
  void note_help() { helps_.store(machine->wake_for() != Wake::nothing, std::memory_order_relaxed); }

  // endpoint_wait.cc
  void wake_waiters();
  void sleep(std::unique_lock<std::mutex>& lock, Request request, std::uint64_t ns);
  void sleep_on_progress(std::unique_lock<std::mutex>& lock, Request request, std::uint64_t ns);
  void sleep_on_adapter(std::unique_lock<std::mutex>& lock, Request request, std::uint64_t ns);

  const std::uint64_t spin_ns_;  // how long wait() polls
  std::vector<Waiter*> waiters_;
  Rhythm rhythm_;
  int unpolled_ = 0;    // visits since one polled
  bool rests_ = false;  // somebody sleeps on what a listener does, now and then
  std::atomic<bool> helps_{false};
  std::uint64_t ticked_at_ = 0, vain_since_ = 0;
  bool closed_ = false;

 public:
  Progress progress;  // ends first: its thread uses everything else
};

}  // namespace ewarp::channel
