// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The background thread: drives the engine when no application thread does, and sleeps in the kernel otherwise.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "llp/futex.h"
#include "llp/thread.h"
#include "provider/base/log.h"
#include "provider/base/options.h"
#include "provider/base/stats.h"
#include "provider/engine/at_exit.h"
#include "provider/engine/engine.h"
#include "provider/engine/shortage.h"

namespace ewarp::verbs {
namespace {

using std::chrono::microseconds;

// While passes find something, everything that is not one of their sockets is asked for after so much time.
constexpr auto kLookAround = microseconds(200);
// The watcher's names for the set of sockets, and for the time to return; watch() gives out others.
constexpr std::uint64_t kSockets = 0;
constexpr std::uint64_t kReturn = ~std::uint64_t{0};

}  // namespace

void Engine::name_poller() {
  char(&poller)[sizeof stats::page().poller] = stats::page().poller;
  std::memset(poller, 0, sizeof poller);
  std::string_view(watcher_->name()).copy(poller, sizeof poller - 1);
}

int Engine::start() noexcept {
  if (forked_) return EPERM;  // the thread is the parent's
  if (running_.load(std::memory_order_acquire)) return 0;
  const llp::Guard guard(starting_);
  if (running_.load(std::memory_order_relaxed)) return 0;
  int error = ENOMEM;
  try {
    error = start_locked();
  } catch (const std::bad_alloc&) {
  }
  if (error != 0) watcher_.reset();
  return error;
}

// Nothing runs yet.
int Engine::start_locked() {
  std::string why;
  watcher_ = llp::make_watcher(options().io_uring, &why, [this](const std::string& reason) {
    log::warn("io_uring fails from here on ({}): epoll instead", reason);
    name_poller();
  });
  if (watcher_ == nullptr) return EMFILE;  // the next call may be luckier
  if (!set_.is_open())
    if (const int error = set_.open()) return error;
  if (!return_.is_open())
    if (const int error = return_.open()) return error;
  if (options().io_uring && !why.empty()) log::info("io_uring is not usable ({}): epoll instead", why);
  name_poller();
  const auto main = [](void* engine) -> void* {
    static_cast<Engine*>(engine)->run_background();
    return nullptr;
  };
  if (const int error = llp::start_detached(main, this)) {
    if (!std::exchange(shortage_said_, true))
      log::error("no thread can be started ({}): `ulimit -u` and the control group's pids.max limit them",
                 std::strerror(error));
    return error;
  }
  set_relief([] { engine().wake(); });
  running_.store(true, std::memory_order_release);
  return 0;
}

void Engine::start_thread() {
  if (const int error = start()) throw std::system_error(error, std::generic_category());
}

void Engine::run_background() {
  pthread_setname_np(pthread_self(), "etherwarp");
  const shortage::Scope patience;  // its tasks have no caller
  background_.store(__builtin_thread_pointer(), std::memory_order_relaxed);
  for (;;) {
    // The process's memory may be about to go. Nobody is to leave anything to this thread meanwhile.
    while (exiting_.load(std::memory_order_seq_cst) != 0) {
      spinning_.store(false, std::memory_order_seq_cst);
      llp::futex_wait(exiting_, 1);
    }
    run_inbox();
    const auto now = Clock::now();
    bool held = busy();
    if (driver_.wants_pass(now, held)) {
      background_pass();
      held = busy();
    }
    driver_.step(now, held) == Driver::State::aside ? stand_aside() : serve();
  }
}

// An application makes the passes, and puts this thread's return off as long as it does. What it leaves to this thread
// comes with reclaim().
void Engine::stand_aside() {
  spinning_.store(false, std::memory_order_seq_cst);
  relies_on_sockets_.store(false, std::memory_order_relaxed);
  watch_return();
  // Where a sandbox forbids the alarm it looks in this period.
  sleep(return_.set(driver_.returns_at()) ? std::chrono::nanoseconds(-1) : Driver::first_period(), Sleep::aside);
  if (!driver_.application_drives()) return_.clear();
  idle_.begin(Clock::now());
}

void Engine::serve() {
  switch (background_pass()) {
    case Passed::something:
      idle_.end(Clock::now());
      if (Clock::now() - looked_ >= kLookAround) {
        spinning_.store(false, std::memory_order_seq_cst);
        sleep(std::chrono::nanoseconds(0), Sleep::for_holder);
      }
      return;
    case Passed::nothing:
      // Not while others have the CPU.
      spinning_.store(false, std::memory_order_seq_cst);
      if (idle_.lasts(Clock::now())) {
        spinning_.store(true, std::memory_order_seq_cst);
        if (Clock::now() - looked_ < kLookAround) return;
        spinning_.store(false, std::memory_order_seq_cst);
        sleep(std::chrono::nanoseconds(0), Sleep::for_holder);
        return;
      }
      sleep(std::chrono::nanoseconds(-1), Sleep::until_ready);
      return;
    case Passed::busy:
      // Its holder makes a pass, so nothing is lost; were it stopped, nobody could do anything about it.
      spinning_.store(false, std::memory_order_seq_cst);
      if (idle_.lasts(Clock::now())) return;
      sleep(Driver::first_period(), Sleep::for_holder);
      return;
  }
}

// Who holds the engine while this thread wants a pass makes it: were this thread to look again later, it would take the
// CPU from a poster in the middle of a send, again and again.
Engine::Passed Engine::background_pass() {
  auto passed = Passed::busy;
  if (try_enter()) {
    const Leaver leaver{*this};
    background_cpu_.store(sched_getcpu(), std::memory_order_relaxed);
    const AtExit left([this] { background_cpu_.store(-1, std::memory_order_relaxed); });
    const bool kicked = pushed();
    serve_tasks();
    serve_kicks();
    passed = pass_for_background(kicked);
  } else if (!passing_.load(std::memory_order_relaxed)) {
    run([&] {
      assert_held();
      if (!passing_.load(std::memory_order_relaxed)) passed = pass_for_background(false);
    });
  }
  if (passed != Passed::busy) stats::add(stats::page().background_passes);
  return passed;
}

Engine::Passed Engine::pass_for_background(bool kicked) {
  bool any = kicked;
  {
    for_background_ = true;
    const AtExit passed([this] {
      assert_held();
      for_background_ = false;
    });
    any |= pass() > 0;
  }
  // From here on this thread may sleep until one of the sockets is ready.
  if (!any) {
    set_.watch_all(std::exchange(sockets_rang_, false));
    relies_on_sockets_.store(true, std::memory_order_relaxed);
  }
  return any ? Passed::something : Passed::nothing;
}

// Tasks, timers, what is to be destroyed.
void Engine::run_inbox() {
  inbox_.exchange(false, std::memory_order_seq_cst);
  asked_.run_tasks();
  asked_.run_timers();
  empty_graveyard();
  // What a leaving thread was relieved of.
  if (pushed() && try_enter()) leave();
  stats::page().app_passes.store(driver_.passes(), std::memory_order_relaxed);
}

void Engine::empty_graveyard() {
  if (!buried_.exchange(false, std::memory_order_acquire)) return;
  std::optional<Graveyard> dead;  // destroyed with the engine let go
  run([&] {
    assert_held();
    dead.emplace(std::move(graveyard_));
  });
}

// While an application drives, its sockets wake nobody.
void Engine::watch_sockets(bool wanted) {
  if (std::exchange(sockets_watched_, wanted) == wanted) return;
  wanted ? watcher_->arm(set_.fd(), POLLIN, kSockets) : watcher_->disarm(set_.fd());
}

void Engine::watch_return() {
  if (!std::exchange(return_watched_, true)) watcher_->arm(return_.fd(), POLLIN, kReturn);
}

// At most `limit` (negative: until something happens).
void Engine::sleep(std::chrono::nanoseconds limit, Sleep how) {
  std::array<llp::Watcher::Ready, 64> ready;
  apply_watch_ops();
  if (limit.count() != 0) watch_sockets(how == Sleep::until_ready);
  // Pairs with wake(), kick(), hand_over() and application_may_sleep(): they set their flag, then look at asleep_ or
  // wake us.
  asleep_.exchange(true, std::memory_order_seq_cst);
  // What is pushed while somebody holds the engine is seen by who leaves it.
  const bool work = pushed() && how != Sleep::for_holder && (how != Sleep::aside || !busy());
  if (inbox_.load(std::memory_order_seq_cst) || work || (how == Sleep::aside && !driver_.application_drives()))
    limit = std::chrono::nanoseconds(0);
  const std::size_t n = watcher_->wait(ready, asked_.until_next(limit));
  asleep_.exchange(false, std::memory_order_seq_cst);
  relies_on_sockets_.store(false, std::memory_order_relaxed);
  looked_ = Clock::now();
  if (how == Sleep::until_ready) stats::add(stats::page().background_wakeups);
  handle_ready(std::span(ready).first(n));
}

// What peers have said on their streams so far is heard, and told, before anything else is.
void Engine::catch_up() {
  acquire();
  {
    const Leaver leaver{*this};
    pass();
    pass();  // one alone may have served nothing but the hot one
  }
  asked_.run_tasks();
}

void Engine::handle_ready(std::span<const llp::Watcher::Ready> ready) {
  // A peer that knows its connection to stand makes the next one: both may have come by now, and the program is to hear
  // of them in this order.
  if (std::any_of(ready.begin(), ready.end(), [](const auto& r) { return r.token != kSockets && r.token != kReturn; }))
    catch_up();
  for (const auto& r : ready) {
    if (r.token == kSockets) {
      sockets_watched_ = false;  // one-shot; the next pass finds them
      sockets_rang_ = true;
      continue;
    }
    if (r.token == kReturn) {
      return_watched_ = false;  // one-shot; the next step sees that it is due
      continue;
    }
    asked_.run_ready(r.token, r.events);
  }
}

// --- inbox ---

void Engine::post(std::function<void()> task) {
  require_thread();
  asked_.add_task(std::move(task));
  wake();
}

std::uint64_t Engine::add_timer(Clock::time_point when, std::function<void()> task) {
  require_thread();
  bool first = false;
  const std::uint64_t id = asked_.add_timer(when, std::move(task), &first);
  if (first) wake();
  return id;
}

void Engine::watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> on_ready) {
  require_thread();
  asked_.watch(fd, events, std::move(on_ready));
  wake();
}

void Engine::unwatch(int fd) {
  if (!running_) return;
  asked_.unwatch(fd);
  wake();
}

void Engine::wake() {
  inbox_.exchange(true, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst)) watcher_->wake();
}

void Engine::apply_watch_ops() {
  for (const Inbox::WatchOp& op : asked_.take_watch_ops())
    op.events == 0 ? watcher_->disarm(op.fd) : watcher_->arm(op.fd, op.events, op.token);
}

}  // namespace ewarp::verbs
