// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What applications and holders do with the engine; fork and exit.
#include "provider/engine/engine.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cassert>

#include "llp/clock.h"
#include "llp/futex.h"
#include "provider/base/options.h"
#include "provider/engine/at_exit.h"
#include "provider/engine/burst_habit.h"
#include "provider/engine/poster_habit.h"

namespace ewarp::verbs {
namespace {

constexpr unsigned kPassesOfAWaiter = 8;  // an application thread that makes so many waits for what it has posted
constexpr std::size_t kPooled = 64;       // buffers kept for reuse
// A part of the shortest time after which a host counts as vanished; and a thousand streams take a millisecond of it.
constexpr auto kLookPeriod = std::chrono::seconds(1);

thread_local PosterHabit poster_habit;
thread_local BurstHabit burst_habit;

PosterHabit::Duration poster_time() {
  if (!poster_habit.by_cpu_time()) return Reactor::Clock::now().time_since_epoch();
  return std::chrono::nanoseconds(thread_cpu_ns());
}

}  // namespace

Engine::Engine()
    : set_(llp::make_batch(options().io_uring)),
      driver_(std::chrono::microseconds(options().takeover_us), effective_spin_us(options()) == 0),
      idle_(std::chrono::microseconds(effective_spin_us(options()))),
      post_wait_(std::chrono::microseconds(options().post_wait_us)) {
  // What is given back finds its place without memory.
  gathers_.reserve(kPooled);
  stagings_.reserve(kPooled);
}

// --- posts ---

void Engine::kick(Kickable& object) {
  // Who waits for work has it at once, and this thread goes on. Pairs with serve() and sleep(): a thread that spins no
  // more says so, then looks at what was pushed.
  if (spinning_.load(std::memory_order_relaxed) && !held()) {
    push(object);
    if (spinning_.load(std::memory_order_seq_cst) && !asleep_.load(std::memory_order_seq_cst)) return;
  }
  EngineLock::kick(object);
}

// What is pushed now is served even if this thread makes no call any more. It is not where applications are about to
// poll (application_will_pass()) but the background thread sleeps on the sockets, and sets no time for its return.
bool Engine::is_seen_to() const {
  return !forked_ && driver_.application_drives() && !relies_on_sockets_.load(std::memory_order_relaxed);
}

void Engine::kick_soon(Kickable& object, const Posted& what) {
  switch (burst_habit.posted(what, post_wait_, is_seen_to(), &Clock::now)) {
    case BurstHabit::Verdict::send:
      kick(object);
      if (burst_habit.pretends()) burst_habit.sent(Clock::now());
      return;
    case BurstHabit::Verdict::wait:
      push(object);
      // Pairs with sleep(): who comes back to serve, or goes to sleep on the sockets, says so, then looks at what was
      // pushed.
      if (asleep_.load(std::memory_order_seq_cst) ? !is_seen_to() : !driver_.application_drives()) serve_pushed();
      return;
    case BurstHabit::Verdict::pass:
      kick(object);
      if (!forked_ && running_.load(std::memory_order_acquire)) make_pass(false, burst_habit.took());
      return;
  }
}

void Engine::send_waiting() {
  if (!burst_habit.waits()) return;
  burst_habit.polled(post_wait_, &Clock::now);
  if (!held()) serve_pushed();
}

void Engine::serve_pushed() {
  if (try_enter()) leave();  // else whoever holds it does
}

void Engine::kick_large(LargePoster& poster, const Posted& what) {
  if (driver_.crowded()) return kick_soon(poster, what);
  if (poster_habit.waits(poster_time()) || forked_ || !running_.load(std::memory_order_acquire)) {
    poster.leave_to_background(0);
    kick_soon(poster, what);
  } else {
    hand_over(poster);
  }
  poster_habit.posted(&poster_time);
}

void Engine::hand_over(LargePoster& poster) {
  const std::uint64_t until = driver_.passes() + kPassesOfAWaiter;
  poster.leave_to_background(until);
  driver_.serve_until(until);
  push(poster);
  // Pairs with sleep(), which looks at what was pushed after it has said that it sleeps.
  driver_.reclaim();
  if (asleep_.load(std::memory_order_seq_cst)) watcher_->wake();
}

bool Engine::may_send(const LargePoster& poster) const {
  return in_background() || driver_.passes() >= poster.left_until();
}

// --- passes ---

std::size_t Engine::pass() {
  return set_.pass([this] {
    assert_held();
    serve_tasks();
  });
}

void Engine::application_pass(bool armed) {
  if (forked_) return;
  const bool looks = !armed && poster_habit.looks();
  if (looks) poster_habit.begins(poster_time());
  burst_habit.polled(post_wait_, &Clock::now);
  make_pass(armed, burst_habit.took());
  if (looks) poster_habit.ended(poster_time());
}

// If the background thread holds the engine on the CPU where this thread polls, it has lost the CPU in the middle of
// its pass, and nothing is served before it goes on. If it holds it elsewhere, it does what this thread could do.
void Engine::let_background_go_on(bool armed) {
  const int cpu = background_cpu_.load(std::memory_order_relaxed);
  if (cpu < 0) return;
  if (!armed) driver_.kept_out();
  if (cpu == sched_getcpu()) sched_yield();
}

// worked: so long this thread has posted before.
void Engine::make_pass(bool armed, Clock::duration worked) {
  if (!try_enter()) return let_background_go_on(armed);
  const Leaver leaver{*this};
  std::size_t moved = 0;
  {
    passing_.store(true, std::memory_order_relaxed);
    const AtExit passed([this] { passing_.store(false, std::memory_order_relaxed); });
    moved = pass();
  }
  if (relies_on_sockets_.load(std::memory_order_relaxed)) set_.keep_watching();
  if (armed) return;
  driver_.passed(moved, set_.served(), worked);
  // This thread drives. Its posts wait from now on, so the background thread is to see when it does no more.
  if (burst_habit.asks() && driver_.may_leave() && !is_seen_to()) {
    driver_.claim();
    wake();
  }
  if (driver_.may_put_off() && driver_.put_off(Clock::now())) return_.set(driver_.returns_at());
}

void Engine::application_may_sleep() {
  send_waiting();
  if (driver_.reclaim() && asleep_.load(std::memory_order_seq_cst)) watcher_->wake();
}

// --- sockets ---

int Engine::add(Pollable& p) {
  assert(held() && running_.load(std::memory_order_relaxed));
  return set_.add(p);
}

// A child of fork() may begin anew if no timer is set.
void Engine::remove(Pollable& p) {
  assert_held();
  set_.remove(p);
  if (set_.empty()) asked_.cancel_timer(std::exchange(look_timer_, 0));
}

void Engine::look_later() {
  assert_held();
  if (look_timer_ != 0) return;
  // One that was cancelled when it was on its way already looks at nothing.
  look_timer_ = add_timer(Clock::now() + kLookPeriod, [this, look = ++looks_] {
    run([this, look] {
      assert_held();
      if (look_timer_ != 0 && look == looks_) this->look();
    });
  });
}

void Engine::look() {
  look_timer_ = 0;
  bool again = false;
  set_.for_each([&again, now = Clock::now()](Pollable& p) { again |= p.look(now); });
  if (again) look_later();
}

void Engine::bury(std::shared_ptr<Pollable> object) {
  assert(held());
  graveyard_.add(std::move(object));
  if (!buried_.exchange(true, std::memory_order_release)) wake();
}

std::unique_ptr<llp::Gather> Engine::take_gather() {
  assert_held();
  if (gathers_.empty()) return std::make_unique<llp::Gather>();
  auto g = std::move(gathers_.back());
  gathers_.pop_back();
  return g;
}

void Engine::give_gather(std::unique_ptr<llp::Gather> g) {
  assert(held() && g != nullptr && g->empty());
  if (gathers_.size() < kPooled) gathers_.push_back(std::move(g));
}

llp::PageMemory Engine::take_staging() {
  assert_held();
  if (stagings_.empty()) return llp::page_memory(kStaging);
  auto s = std::move(stagings_.back());
  stagings_.pop_back();
  return s;
}

void Engine::give_staging(llp::PageMemory s) {
  assert(held() && s != nullptr);
  if (stagings_.size() < kPooled) stagings_.push_back(std::move(s));
}

// --- fork and exit ---

bool Engine::hold_for_fork() {
  if (held()) {
    forked_inside_ = true;
    return false;
  }
  acquire();
  forked_inside_ = false;
  serve_tasks();
  serve_kicks();
  return true;
}

// Nothing of it was in use yet: a server that opens its device and then forks its workers. True: it is as new.
bool Engine::begin_anew_in_child(int own) EWARP_NO_LOCK_ANALYSIS {
  if (!set_.empty() || !graveyard_.empty() || !asked_.begin_anew_in_child(own)) return false;
  static_cast<void>(watcher_.release());  // closed; its memory is the vanished thread's
  set_.close_in_child(llp::make_batch(options().io_uring));
  asleep_ = inbox_ = running_ = relies_on_sockets_ = false;
  sockets_watched_ = return_watched_ = false;
  exiting_ = 0;
  driver_.reclaim();
  return true;
}

void Engine::abandon_in_child() {
  background_.store(nullptr, std::memory_order_relaxed);
  spinning_ = false;
  asked_.renew_in_child();
  starting_.renew_in_child();
  set_.close_in_child(llp::make_batch(false));
  if (watcher_ != nullptr) watcher_->close_in_child();
  return_.close();
  forked_ = true;
}

void Engine::close_watched_in_child() EWARP_NO_LOCK_ANALYSIS {
  background_.store(nullptr, std::memory_order_relaxed);
  spinning_ = false;
  asked_.close_watched_in_child();
}

void Engine::begin_in_child(int own) {
  if (watcher_ != nullptr) watcher_->close_in_child();
  return_.close();
  // Where the thread did not run there is the ring for batches all the same, whose memory a child does not get.
  const bool ran = running_;
  const bool anew = begin_anew_in_child(own);
  forked_ = ran && !anew;
  if (!anew) set_.close_in_child(llp::make_batch(false));
}

// Nothing that the background thread uses is ever destroyed, so it may go on until the process has ended.
void Engine::at_exit(void (*others)(Clock::time_point until)) {
  if (forked_ || !running_) return;
  exiting_ = 1;
  spinning_ = false;
  // exit() in a signal handler that interrupted a pass: the background thread stands still for good.
  if (held()) return;
  if (acquire(std::chrono::milliseconds(200))) {
    finish_streams(others);
    leave();
  }
  exiting_ = 0;
  llp::futex_wake_one(exiting_);
}

void Engine::finish_streams(void (*others)(Clock::time_point until)) {
  serve_kicks();  // what was left to the background thread
  const auto until = Clock::now() + std::chrono::milliseconds(100);
  set_.for_each([](Pollable& p) { p.finish(); });
  others(until);
  set_.for_each([&](Pollable& p) {
    while (!p.drained() && Clock::now() < until) {
      pollfd ready{p.fd(), POLLIN, 0};
      if (poll(&ready, 1, 20) < 0) break;
    }
    set_.update(p, false);  // the background thread may sleep on it, and has not seen what this one has taken
  });
}

}  // namespace ewarp::verbs
