// The background thread: drives the engine when no application thread does, and sleeps in the kernel otherwise.
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "provider/verbs/connection.h"
#include "provider/verbs/engine.h"
#include "provider/verbs/log.h"
#include "provider/verbs/options.h"
#include "provider/verbs/queue_pair.h"
#include "provider/verbs/stats.h"

namespace ewarp::verbs {
namespace {

using std::chrono::microseconds;

// The thread compares its passes with the application's over this time.
constexpr auto kWindow = microseconds(50);
constexpr std::uint64_t kMinApplicationPasses = 10;
// An application that stops polling so soon after we stepped aside did not mean to drive.
constexpr auto kTooShort = std::chrono::milliseconds(5);
constexpr unsigned kMaxWindows = 256;
// One that has made no pass for so long computes, or sleeps.
constexpr auto kGone = std::chrono::microseconds(30);
// A tick is a sleep, or so much time without one.
constexpr auto kTick = std::chrono::microseconds(500);
// Passes between two looks at everything that is not an active stream; when passes are long, so much time.
constexpr unsigned kHousekeeping = 64;
constexpr auto kHousekeepingTime = std::chrono::microseconds(200);

}  // namespace

void Engine::start_thread() {
  if (running_.load(std::memory_order_acquire)) return;
  const std::lock_guard guard(mutex_);
  if (running_.load(std::memory_order_relaxed)) return;
  std::string why;
  watcher_ = llp::make_watcher(options().io_uring, &why);
  if (watcher_ == nullptr) throw std::system_error(EMFILE, std::generic_category());  // the next call may be luckier
  if (options().io_uring && !why.empty()) log::info("io_uring is not usable ({}): epoll instead", why);
  const std::string name = watcher_->name();
  name.copy(stats::page().poller, sizeof stats::page().poller - 1);
  // All signals belong to the application's threads; these four are ours when we cause them.
  sigset_t all, before;
  sigfillset(&all);
  for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, s);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(&Engine::run, this).detach();
  running_.store(true, std::memory_order_release);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Engine::run() {
  pthread_setname_np(pthread_self(), "etherwarp");
  std::uint64_t seen = 0;
  auto seen_at = Clock::now();
  auto looked = seen_at;  // when streams that are not active were last asked for
  bool stepped_aside = false;
  for (unsigned turn = 0;; ++turn) {
    const bool look = turn % kHousekeeping == 0 || Clock::now() - looked >= kHousekeepingTime;
    if (look) {
      looked = Clock::now();
      spinning_.store(false, std::memory_order_seq_cst);
    }
    housekeeping(look);
    if (driver_.load(std::memory_order_relaxed) == Driver::application) {
      // A timer may have ended the sleep early: then nothing can be said yet, and nobody is to be disturbed.
      if (const auto since = Clock::now() - seen_at; since < takeover_) {
        if (wait_aside(takeover_ - since)) looked = Clock::now();
        continue;
      }
      const std::uint64_t now = application_passes_.load(std::memory_order_relaxed);
      tick_.fetch_add(1, std::memory_order_relaxed);
      if (now == seen) {
        driver_.store(Driver::background);
        if (Clock::now() - aside_since_ < kTooShort) windows_needed_ = std::min(windows_needed_ * 2, kMaxWindows);
        continue;
      }
      seen = now;
      seen_at = Clock::now();
      enter();
      const bool fewer = demote_silent();
      leave();
      if (fewer) sleep(std::chrono::nanoseconds(0));  // from here on the kernel watches them
      continue;
    }
    if (std::exchange(stepped_aside, false)) {
      aside_.end(Clock::now());
      idle_.begin(Clock::now());
    }
    const bool any = background_pass();
    if (any) idle_.end(Clock::now());
    if (step_aside()) {
      spinning_.store(false, std::memory_order_seq_cst);
      seen = application_passes_.load(std::memory_order_relaxed) - 1;
      aside_since_ = Clock::now();
      aside_.begin(aside_since_);
      stepped_aside = true;
      driver_.store(Driver::application, std::memory_order_seq_cst);
      // hand_over() pushes, then says who drives: what it pushed before the line above would wait for takeover_us.
      if (kicks_.load(std::memory_order_seq_cst) != nullptr) driver_.store(Driver::background);
      continue;
    }
    if (any) continue;
    // Not while others have the CPU.
    spinning_.store(false, std::memory_order_seq_cst);
    if (idle_.lasts(Clock::now())) {
      spinning_.store(true, std::memory_order_relaxed);
      continue;
    }
    arm_active();
    sleep(std::chrono::nanoseconds(-1));
    looked = Clock::now();
    tick_.fetch_add(1, std::memory_order_relaxed);
  }
}

// Tasks and timers; with `all` also the sockets that are not streams, which nobody else looks at while we are busy.
void Engine::housekeeping(bool all) {
  if (inbox_.exchange(false, std::memory_order_seq_cst) || all) {
    run_tasks();
    run_timers();
    stats::page().app_passes.store(application_passes_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  if (all) sleep(std::chrono::nanoseconds(0));
}

bool Engine::background_pass() {
  if (waiting_.load(std::memory_order_relaxed) != 0 || !try_enter()) return false;
  const bool kicked = kicks_.load(std::memory_order_relaxed) != nullptr;
  background_holds_ = true;
  if (kicked) serve_kicks();
  const bool any = pass() || kicked;
  background_holds_ = false;
  // One stream that is busy without end must not keep thousands of silent ones in every pass.
  const auto now = Clock::now();
  bool fewer = false;
  if (now - ticked_ >= kTick) {
    ticked_ = now;
    tick_.fetch_add(1, std::memory_order_relaxed);
    fewer = demote_silent();
  }
  // Once, where leave() goes on as long as there are posts: who posts to a thread that spins makes no pass himself, and
  // would keep it from ours. What comes later finds this thread in its next pass, or about to sleep.
  serve_kicks();
  held_.exchange(0, std::memory_order_seq_cst);
  if (fewer) sleep(std::chrono::nanoseconds(0));  // from here on the kernel watches them
  ++window_background_;
  stats::add(stats::page().background_passes);
  return any;
}

// True when the application has been doing a fair share of the passes for long enough.
bool Engine::step_aside() {
  const auto now = Clock::now();
  if (now - window_start_ < kWindow) return false;
  const std::uint64_t passes = application_passes_.load(std::memory_order_relaxed);
  const std::uint64_t theirs = passes - window_application_;
  const bool fair = passes >= handed_until_.load(std::memory_order_relaxed) && now - window_start_ < 20 * kWindow &&
                    theirs >= kMinApplicationPasses && theirs * 2 >= window_background_;
  window_start_ = now;
  window_application_ = passes;
  window_background_ = 0;
  windows_seen_ = fair ? windows_seen_ + 1 : 0;
  if (windows_seen_ < windows_needed_) return false;
  windows_seen_ = 0;
  return true;
}

// Until the application hands the engine back, or something is in the inbox; at most `limit`. True: it slept, and so asked
// the kernel for everything else; it spins only until that is due.
bool Engine::wait_aside(std::chrono::nanoseconds limit) {
  const auto began = Clock::now(), until = began + until_next_timer(limit);
  const auto wanted = [this] {
    return driver_.load(std::memory_order_seq_cst) != Driver::application || inbox_.load(std::memory_order_relaxed);
  };
  std::uint64_t passes = 0;
  auto passed = began;
  for (auto now = began; now < until && now - began < kHousekeepingTime; now = Clock::now()) {
    if (wanted()) return false;
    // As cheap as it is while we spin, the application need not be gone for takeover_us.
    const std::uint64_t p = application_passes_.load(std::memory_order_relaxed);
    if (std::exchange(passes, p) != p || held_.load(std::memory_order_relaxed) != 0) {
      passed = now;
    } else if (now - passed >= kGone) {
      Driver application = Driver::application;
      driver_.compare_exchange_strong(application, Driver::background);
      return false;
    }
    if (aside_.lasts(now)) continue;
    sleep(until - now, true);
    return true;
  }
  return false;
}

// At most `limit` (negative: until something happens).
void Engine::sleep(std::chrono::nanoseconds limit, bool aside) {
  std::array<llp::Watcher::Ready, 64> ready;
  apply_watch_ops();
  // Pairs with add(), wait_writable(), kick(), hand_over(), application_may_sleep() and the inbox: they set their flag,
  // then look at asleep_ or wake us.
  asleep_.exchange(true, std::memory_order_seq_cst);
  if (limit.count() < 0 && rearm_.load(std::memory_order_seq_cst)) limit = std::chrono::nanoseconds(0);
  if (kicks_.load(std::memory_order_seq_cst) != nullptr) limit = std::chrono::nanoseconds(0);
  if (aside && driver_.load(std::memory_order_seq_cst) != Driver::application) limit = std::chrono::nanoseconds(0);
  const std::size_t n = watcher_->wait(ready, until_next_timer(limit));
  asleep_.exchange(false, std::memory_order_seq_cst);
  if (limit.count() < 0) stats::add(stats::page().background_wakeups);
  handle_ready(std::span(ready).first(n));
}

// Every active stream is watched by the kernel from here on. They stay active, so that an application that begins to
// poll finds them.
void Engine::arm_active() {
  enter();
  rearm_.exchange(false, std::memory_order_seq_cst);
  for (Connection* c : active_) {
    const std::uint32_t events = (c->readable() ? POLLIN : 0) | (c->has_output() ? POLLOUT : 0);
    if (events != 0 && (!c->armed || c->armed_events != events)) arm(*c, events);
    c->rest();
  }
  arm_pollables();
  demote_silent();
  leave();
}

// Cost per pass follows the streams that carry something. Engine held. True: some have left.
bool Engine::demote_silent() {
  if (active_.size() + active_pollables_.size() <= kAlwaysActive) return false;
  const bool any = demote_pollables();
  return std::erase_if(active_, [this](Connection* c) {
    if (tick() - c->last_tick < kSilentTicks || c->has_output() || !c->readable()) return false;
    if (!c->armed) arm(*c, POLLIN);
    c->rest();
    c->active = false;
    return true;
  }) > 0 || any;
}

// Background thread, engine held.
void Engine::arm(Connection& c, std::uint32_t events) {
  std::lock_guard guard(mutex_);
  // What was asked for this number before it became the stream's (the start-up watched it) must not come after.
  if (std::erase_if(watch_ops_, [&](const WatchOp& op) { return op.fd == c.fd(); }) > 0) watcher_->disarm(c.fd());
  Watch& w = watches_[c.fd()];
  tokens_.erase(w.token);
  w = Watch{next_id_++, nullptr, &c};
  tokens_[w.token] = c.fd();
  c.armed = true;
  c.armed_events = events;
  watcher_->arm(c.fd(), events, w.token);
}

void Engine::handle_ready(std::span<const llp::Watcher::Ready> ready) {
  for (const auto& r : ready) {
    std::function<void(std::uint32_t)> call;
    bool is_stream = false;
    {
      std::lock_guard guard(mutex_);
      const auto t = tokens_.find(r.token);
      if (t == tokens_.end()) continue;
      const auto w = watches_.find(t->second);
      is_stream = w->second.connection != nullptr;
      if (!is_stream) {
        call = std::move(w->second.on_ready);
        watches_.erase(w);
        tokens_.erase(t);
      }
    }
    if (call) call(r.events);
    if (!is_stream) continue;
    enter();
    Connection* c = nullptr;
    {
      std::lock_guard guard(mutex_);
      const auto t = tokens_.find(r.token);  // it may have ended before we held the engine
      if (t != tokens_.end()) {
        c = watches_[t->second].connection;
        watches_.erase(t->second);
        tokens_.erase(t);
      }
    }
    if (c != nullptr) {
      c->armed = false;
      c->last_tick = tick();
      activate(*c);
    }
    leave();
  }
}

// --- inbox ---

void Engine::post(std::function<void()> task) {
  start_thread();
  {
    std::lock_guard guard(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake();
}

void Engine::run_tasks() {
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard guard(mutex_);
    tasks.swap(tasks_);
  }
  for (auto& t : tasks) t();
}

std::uint64_t Engine::add_timer(Clock::time_point when, std::function<void()> task) {
  start_thread();
  std::uint64_t id;
  bool first;
  {
    std::lock_guard guard(mutex_);
    id = next_id_++;
    first = timers_.empty() || when < timers_.begin()->first.first;
    timers_.emplace(std::pair(when, id), std::move(task));
    timer_times_.emplace(id, when);
  }
  if (first) wake();
  return id;
}

void Engine::cancel_timer(std::uint64_t id) {
  if (id == 0) return;
  std::function<void()> dropped;  // destroyed outside the lock: it may hold the last reference to something
  std::lock_guard guard(mutex_);
  const auto t = timer_times_.find(id);
  if (t == timer_times_.end()) return;
  const auto it = timers_.find({t->second, id});
  dropped = std::move(it->second);
  timers_.erase(it);
  timer_times_.erase(t);
}

void Engine::run_timers() {
  for (;;) {
    std::function<void()> task;
    {
      std::lock_guard guard(mutex_);
      if (timers_.empty() || timers_.begin()->first.first > Clock::now()) return;
      task = std::move(timers_.begin()->second);
      timer_times_.erase(timers_.begin()->first.second);
      timers_.erase(timers_.begin());
    }
    task();
  }
}

// How long to sleep: at most `limit` (negative: no limit), and not past the next timer or a waiting task.
std::chrono::nanoseconds Engine::until_next_timer(std::chrono::nanoseconds limit) {
  std::lock_guard guard(mutex_);
  if (!tasks_.empty() || !watch_ops_.empty()) return std::chrono::nanoseconds(0);
  if (timers_.empty()) return limit;
  const auto left = std::max(timers_.begin()->first.first - Clock::now(), Clock::duration(0));
  return limit.count() < 0 ? left : std::min<std::chrono::nanoseconds>(left, limit);
}

void Engine::watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> on_ready) {
  start_thread();
  {
    std::lock_guard guard(mutex_);
    Watch& w = watches_[fd];
    tokens_.erase(w.token);
    w = Watch{next_id_++, std::move(on_ready), nullptr};
    tokens_[w.token] = fd;
    watch_ops_.push_back({fd, events, w.token});
  }
  wake();
}

void Engine::unwatch(int fd) {
  if (!running_) return;
  std::function<void(std::uint32_t)> dropped;
  {
    std::lock_guard guard(mutex_);
    const auto it = watches_.find(fd);
    if (it != watches_.end() && it->second.connection == nullptr) {
      dropped = std::move(it->second.on_ready);
      tokens_.erase(it->second.token);
      watches_.erase(it);
    }
    watch_ops_.push_back({fd, 0, 0});
  }
  wake();
}

void Engine::wake() {
  inbox_.exchange(true, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst)) watcher_->wake();
}

void Engine::apply_watch_ops() {
  std::vector<WatchOp> ops;
  {
    std::lock_guard guard(mutex_);
    ops.swap(watch_ops_);
  }
  for (const WatchOp& op : ops)
    op.events == 0 ? watcher_->disarm(op.fd) : watcher_->arm(op.fd, op.events, op.token);
}

// --- the end of a socket ---

// The background thread takes it out of the watcher before the number can be used again.
void Engine::close_now(int fd) {
  if (fd < 0) return;
  ::shutdown(fd, SHUT_RDWR);  // the close itself takes effect only when the watcher lets go of it
  post([this, fd] {
    watcher_->disarm(fd);
    ::close(fd);
  });
}

void Engine::drain_and_close(int fd) {
  if (fd < 0) return;
  ::shutdown(fd, SHUT_WR);
  post([this, fd] {
    watcher_->disarm(fd);
    const std::uint64_t timer = add_timer(Clock::now() + std::chrono::milliseconds(options().close_timeout_ms),
                                          [this, fd] {
                                            unwatch(fd);
                                            close_now(fd);
                                          });
    drain(fd, timer);
  });
}

void Engine::drain(int fd, std::uint64_t timer) {
  std::array<std::byte, 16384> sink;
  for (int i = 0; i < 64; ++i) {
    const ssize_t n = recv(fd, sink.data(), sink.size(), MSG_DONTWAIT);
    if (n > 0) continue;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    cancel_timer(timer);
    watcher_->disarm(fd);
    ::close(fd);
    return;
  }
  watch(fd, POLLIN, [this, fd, timer](std::uint32_t) { drain(fd, timer); });
}

}  // namespace ewarp::verbs
