// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The engine: drives every stream of this process (docs/design/engine.md). Whoever holds it may touch the streams: an
// application thread for one non-blocking pass, or the background thread.
//
// Lock order, outermost first: engine, work queue (SQ, RQ or SRQ), CQ; and engine, inbox. Registration never takes the
// engine: an application's memory hooks may deregister from inside free() while this thread holds it.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "llp/alarm.h"
#include "llp/gather.h"
#include "llp/page_memory.h"
#include "llp/watcher.h"
#include "provider/engine/active_set.h"
#include "provider/engine/driver.h"
#include "provider/engine/engine_lock.h"
#include "provider/engine/inbox.h"
#include "provider/engine/patience.h"
#include "provider/engine/pollable.h"
#include "provider/engine/reactor.h"

namespace ewarp::verbs {

struct Posted;  // burst_habit.h

class Engine final : public Reactor, public EngineLock {
 public:
  Engine();

  // Before anything that needs the background thread is begun: later it can no longer fail for want of a thread or of
  // file descriptors. Throws std::system_error (EAGAIN, EMFILE); nothing has changed then.
  void require_thread() {
    if (!running_.load(std::memory_order_acquire)) start_thread();
  }

  // --- application threads ---

  // ibv_poll_cq() found nothing: one pass, if the engine is free. A thread that polls an armed CQ is about to sleep and
  // does not count as a driver.
  void application_pass(bool armed);
  // Passes will follow each other for a while: the background thread need not come for what arrives meanwhile.
  void application_will_pass() { driver_.claim(); }
  // ibv_req_notify_cq(): the application is likely to sleep now.
  void application_may_sleep();
  // run() for a call that begins or ends a stream, or may: the application is likely to sleep until the peer has done
  // its part, and not to poll, so the background thread is to see that at once.
  template <class F>
  void run_control(F&& f) {
    run(std::forward<F>(f));
    application_may_sleep();
  }
  // A queue pair (or an SRQ) has new work: it is served now, by this thread, the holder, or a background thread that
  // spins.
  void kick(Kickable& object);
  // The same for a post: it may be served with this thread's next poll, if the thread is known to poll soon.
  void kick_soon(Kickable& object, const Posted& what);
  // The same for much to send: unless the application is known to wait for such posts, the background thread does it,
  // and this thread goes on at once.
  void kick_large(LargePoster& poster, const Posted& what);
  // What this thread's posts have left to its next poll is served now.
  void send_waiting();
  // Whether this holder may send for a queue pair that has much to send. An application thread may when it polls
  // persistently, for then it waits. Held.
  bool may_send(const LargePoster& poster) const EWARP_REQUIRES(this);
  // Application threads make the passes, or did until takeover_us ago.
  bool application_drives() const { return driver_.application_drives(); }
  // Something was received, or an event raised, for which somebody waits or does not (driver.h). Held.
  void came(bool waited_for) EWARP_REQUIRES(this) { driver_.came(waited_for); }
  // So many octets have left for what was posted, outside of a pass. Held.
  void sent(std::size_t octets) EWARP_REQUIRES(this) {
    if (!in_background()) driver_.sent(octets);
  }
  // What the holder does now is the background thread's work: it holds the engine itself, or has asked for a pass.
  // Held.
  bool in_background() const EWARP_REQUIRES(this) {
    return background_.load(std::memory_order_relaxed) == __builtin_thread_pointer() || for_background_;
  }

  // --- sockets; all need the engine held ---

  // 0 or errno (ENOMEM). Requires: require_thread() before.
  [[nodiscard]] int add(Pollable& pollable) EWARP_REQUIRES(this);
  // Takes it out of every list; no call reaches it afterwards. Before its fd is closed.
  void remove(Pollable& pollable) EWARP_REQUIRES(this);
  // Pollable::look() is called once a second from now on, of all of them, until none asks for more.
  void look_later() EWARP_REQUIRES(this);
  // What it wants to read or write has changed: the kernel says when it can. An application that was about to poll
  // (application_will_pass()) need not: while the background thread sleeps on the sockets, it hears of all.
  void update(Pollable& pollable) EWARP_REQUIRES(this) {
    assert(held());
    set_.update(pollable, application_drives() && !relies_on_sockets_.load(std::memory_order_relaxed));
  }
  // Destroys the object once nothing of the current pass refers to it. Throws nothing.
  void bury(std::shared_ptr<Pollable> object) EWARP_REQUIRES(this);

  static constexpr std::size_t kStaging = 128 * 1024;
  std::unique_ptr<llp::Gather> take_gather() EWARP_REQUIRES(this);
  void give_gather(std::unique_ptr<llp::Gather> gather) EWARP_REQUIRES(this);
  llp::PageMemory take_staging() EWARP_REQUIRES(this);
  void give_staging(llp::PageMemory staging) EWARP_REQUIRES(this);

  // --- Reactor ---
  int start() noexcept override;
  void post(std::function<void()> task) override;
  std::uint64_t add_timer(Clock::time_point when, std::function<void()> task) override;
  void cancel_timer(std::uint64_t id) override { asked_.cancel_timer(id); }
  void watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> on_ready) override;
  void unwatch(int fd) override;

  // --- fork and exit (provider/process has the whole order of it) ---

  bool forked() const { return forked_; }
  // In the forking thread. False: a signal handler that interrupted a pass forks; whatever it holds, the child gets it
  // as it is, and nothing else is to be done before. Otherwise the engine is held from here on.
  bool hold_for_fork() EWARP_NO_LOCK_ANALYSIS;
  void lock_inbox() EWARP_NO_LOCK_ANALYSIS {
    starting_.lock();
    asked_.lock();
  }
  void unlock_inbox() EWARP_NO_LOCK_ANALYSIS {
    asked_.unlock();
    starting_.unlock();
  }
  // Between the two calls around fork(), in the forking thread.
  bool forked_inside() const { return forked_inside_; }
  void after_fork_parent() EWARP_NO_LOCK_ANALYSIS { leave(); }
  // In the child. Where it was forked inside a pass: its handler may return into that pass, which then finds its
  // sockets closed.
  void abandon_in_child();
  // What was watched is the parent's.
  void close_watched_in_child();
  // As new if nothing was in use yet but `own`, a descriptor that is watched from the start (-1: none); else forked().
  void begin_in_child(int own);

  // What was handed over still leaves (bounded). others(until): what else has to. The background thread stands still
  // meanwhile. Exit handlers that run later may use the engine.
  void at_exit(void (*others)(Clock::time_point until));

 private:
  enum class Passed { nothing, something, busy };
  // How it sleeps: until a socket is ready; as long as an application drives; until a holder may have left.
  enum class Sleep { until_ready, aside, for_holder };

  void start_thread();
  int start_locked() EWARP_REQUIRES(starting_);
  void name_poller();
  bool begin_anew_in_child(int own);
  std::size_t pass() EWARP_REQUIRES(this);
  void hand_over(LargePoster& poster);
  void finish_streams(void (*others)(Clock::time_point until)) EWARP_REQUIRES(this);
  void look() EWARP_REQUIRES(this);
  // Background thread.
  void run_background();
  void serve();
  void stand_aside();
  bool is_seen_to() const;
  void serve_pushed();
  void let_background_go_on(bool armed);
  void make_pass(bool armed, Clock::duration worked);
  Passed background_pass();
  Passed pass_for_background(bool kicked) EWARP_REQUIRES(this);
  void run_inbox();
  void empty_graveyard();
  void sleep(std::chrono::nanoseconds limit, Sleep how);
  void watch_sockets(bool wanted);
  void watch_return();
  void catch_up();
  void handle_ready(std::span<const llp::Watcher::Ready> ready);
  void apply_watch_ops();
  void wake();

  // Engine held.
  ActiveSet set_;
  bool for_background_ EWARP_GUARDED_BY(this) = false;  // a pass that the background thread has asked its holder for
  Graveyard graveyard_ EWARP_GUARDED_BY(this);
  std::vector<std::unique_ptr<llp::Gather>> gathers_ EWARP_GUARDED_BY(this);
  std::vector<llp::PageMemory> stagings_ EWARP_GUARDED_BY(this);

  std::uint64_t look_timer_ EWARP_GUARDED_BY(this) = 0;  // 0: none is set
  std::uint64_t looks_ EWARP_GUARDED_BY(this) = 0;       // that were ever begun

  // Who drives.
  Driver driver_;
  // The background thread sleeps on the sockets, or is about to. Set with the engine held.
  std::atomic<bool> relies_on_sockets_{false};
  std::atomic<int> background_cpu_{-1};  // where the background thread began the pass that it makes
  std::atomic<bool> passing_{false};     // an application's thread makes a pass; written by the holder
  llp::Alarm return_;                    // of the background thread that stands aside
  std::atomic<bool> buried_{false};      // there is something in the graveyard
  std::atomic<bool> asleep_{false};
  std::atomic<bool> spinning_{false};  // the background thread waits for work, and not in the kernel
  std::atomic<bool> inbox_{false};     // something was put into asked_
  // 1: the background thread does nothing until it is 0 again. A futex.
  std::atomic<std::uint32_t> exiting_{0};
  std::atomic<const void*> background_{nullptr};
  // Background thread only.
  Patience idle_;
  const Clock::duration post_wait_;  // 0: no post waits
  bool sockets_watched_ = false;     // set_.fd(), by the watcher
  bool sockets_rang_ = false;        // it was ready since set_.watch_all(); or by who makes its pass
  bool return_watched_ = false;      // return_.fd(), by the watcher
  Clock::time_point looked_{};       // when everything else was last asked for

  Inbox asked_;  // of the background thread
  llp::Mutex starting_;
  std::unique_ptr<llp::Watcher> watcher_;
  std::atomic<bool> running_{false};
  bool shortage_said_ = false;  // that no thread can be started
  bool forked_ = false;
  bool forked_inside_ = false;  // by a signal handler that interrupted the holder; written with the engine held
};

// What a reactor calls: f(object) with the engine held, if the object still lives. object: a shared_ptr or weak_ptr. If
// f throws (no memory), the object is told by its broken(), if it has one.
template <class Ref, class F>
auto with_engine(Engine& engine, const Ref& object, F f) {
  return [&engine, weak = std::weak_ptr(object), f](auto...) {
    const auto alive = weak.lock();
    if (alive == nullptr) return;
    engine.run([&] {
      try {
        f(*alive);
      } catch (const std::exception&) {
        if constexpr (requires { alive->broken(); }) alive->broken();
        throw;
      }
    });
  };
}

Engine& engine();

}  // namespace ewarp::verbs
