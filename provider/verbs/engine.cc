// Holding the engine, and one pass over the active streams.
#include "provider/verbs/engine.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "llp/spinlock.h"
#include "provider/verbs/bring_up.h"
#include "provider/verbs/connection.h"
#include "provider/verbs/datagram_port.h"
#include "provider/verbs/kickable.h"
#include "provider/verbs/log.h"
#include "provider/verbs/multicast.h"
#include "provider/verbs/options.h"
#include "provider/verbs/port_monitor.h"
#include "provider/verbs/poster_habit.h"
#include "provider/verbs/qp_numbers.h"
#include "provider/verbs/queue_pair.h"
#include "provider/verbs/stats.h"

namespace ewarp::verbs {
namespace {

constexpr std::size_t kBatch = 32;      // streams per system call of a pass
constexpr unsigned kKickSpins = 64;     // how long a poster waits for a holder in a short pass
constexpr unsigned kPassesOfAWaiter = 8;  // an application thread that makes so many waits for what it has posted
constexpr std::size_t kPooled = 64;     // buffers kept for reuse

thread_local PosterHabit poster_habit;

}  // namespace

Engine& engine() {
  static Engine* e = new Engine;  // outlives every thread
  return *e;
}

Reactor& reactor() { return engine(); }

bool forked_child() { return engine().forked(); }

Engine::Engine() : idle_(std::chrono::microseconds(effective_spin_us(options()))), aside_(idle_) {
  const Options& o = options();
  batch_ = llp::make_batch(o.io_uring);
  takeover_ = std::chrono::microseconds(o.takeover_us);
  pthread_atfork([] { engine().before_fork(); }, [] { engine().after_fork_parent(); },
                 [] { engine().after_fork_child(); });
  std::atexit([] { engine().at_exit(); });
}

// --- holding ---

bool Engine::try_enter() {
  return held_.load(std::memory_order_seq_cst) == 0 && held_.exchange(1, std::memory_order_seq_cst) == 0;
}

void Engine::enter() {
  if (try_enter()) return;
  // Threads that only make passes let us go first: one that polls without pause would never leave a gap.
  waiting_.fetch_add(1, std::memory_order_relaxed);
  for (unsigned spins = 0; !try_enter();) {
    signs_.fetch_add(1, std::memory_order_relaxed);
    ++spins % 128 == 0 ? static_cast<void>(sched_yield()) : llp::cpu_relax();
  }
  waiting_.fetch_sub(1, std::memory_order_relaxed);
}

void Engine::leave() {
  do {
    serve_kicks();
    // Pairs with kick(): the poster pushes, then tries to enter; we let go, then look for what was pushed.
    held_.exchange(0, std::memory_order_seq_cst);
  } while (kicks_.load(std::memory_order_seq_cst) != nullptr && try_enter());
}

void Engine::push(Kickable& object) {
  if (object.kicked.exchange(true, std::memory_order_seq_cst)) return;
  Kickable* first = kicks_.load(std::memory_order_relaxed);
  do object.next_kick = first;
  while (!kicks_.compare_exchange_weak(first, &object, std::memory_order_seq_cst));
}

void Engine::kick(Kickable& object) {
  push(object);
  // Who waits for work has it at once, and this thread goes on. Pairs with run() and sleep(): a thread that spins no more
  // says so, then looks at kicks_.
  if (spinning_.load(std::memory_order_seq_cst) && !asleep_.load(std::memory_order_seq_cst)) return;
  // The holder serves it before it lets go. It is worth a short wait to find the engine free: then the completion is
  // there when this returns.
  for (unsigned spins = 0; spins < kKickSpins; ++spins) {
    if (try_enter()) {
      leave();
      return;
    }
    if (!object.kicked.load(std::memory_order_relaxed)) return;
    llp::cpu_relax();
  }
}

void Engine::kick_large(QueuePair& qp) {
  if (poster_habit.waits(Clock::now()) || forked_ || !running_.load(std::memory_order_acquire)) {
    qp.leave_to_background(0);
    kick(qp);
  } else {
    hand_over(qp);
  }
  poster_habit.posted(Clock::now());
}

void Engine::hand_over(QueuePair& qp) {
  const std::uint64_t until = application_passes_.load(std::memory_order_relaxed) + kPassesOfAWaiter;
  qp.leave_to_background(until);
  handed_until_.store(until, std::memory_order_relaxed);
  push(qp);
  // Pairs with sleep(), which looks at kicks_ after it has said that it sleeps.
  driver_.store(Driver::background, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst)) watcher_->wake();
}

bool Engine::may_send(const QueuePair& qp) const {
  return background_holds_ || application_passes_.load(std::memory_order_relaxed) >= qp.left_until();
}

void Engine::serve_kicks() {
  Kickable* last = kicks_.exchange(nullptr, std::memory_order_seq_cst);
  Kickable* object = nullptr;
  while (last != nullptr) {  // the last one lies on top: in the order in which they were pushed
    Kickable* before = last->next_kick;
    last->next_kick = object;
    object = std::exchange(last, before);
  }
  while (object != nullptr) {
    Kickable* next = object->next_kick;
    object->kicked.exchange(false, std::memory_order_seq_cst);
    object->serve();
    object = next;
  }
}

void Engine::application_pass(bool armed) {
  if (forked_) return;
  if (!armed && poster_habit.poll()) poster_habit.polled(Clock::now());
  // Who waits gets its gaps, but if it gives no sign of life since our last pass, it waits for a CPU, perhaps for this
  // one: then we must not stand still.
  if (waiting_.load(std::memory_order_relaxed) != 0) {
    thread_local unsigned seen = 0;
    if (const unsigned signs = signs_.load(std::memory_order_relaxed); std::exchange(seen, signs) != signs) {
      llp::cpu_relax();
      return;
    }
  }
  if (!try_enter()) return;
  pass();
  leave();
  if (armed) return;
  application_passes_.fetch_add(1, std::memory_order_relaxed);
}

void Engine::application_may_sleep() {
  if (driver_.load(std::memory_order_relaxed) != Driver::application) return;
  // Pairs with sleep(), which looks who drives after it has said that it sleeps.
  if (driver_.exchange(Driver::background, std::memory_order_seq_cst) != Driver::application) return;
  if (asleep_.load(std::memory_order_seq_cst)) watcher_->wake();
}

// --- streams ---

void Engine::add(Connection& c) {
  start_thread();
  connections_.insert(&c);
  c.active = true;
  c.last_tick = tick();
  active_.push_back(&c);
  // Whoever sleeps does not know this stream yet.
  rearm_ = true;
  if (asleep_.load()) watcher_->wake();
}

void Engine::remove(Connection& c) {
  connections_.erase(&c);
  std::erase(active_, &c);
  c.active = false;
  std::lock_guard guard(mutex_);
  const auto it = watches_.find(c.fd());
  if (it == watches_.end() || it->second.connection != &c) return;
  tokens_.erase(it->second.token);
  watches_.erase(it);
}

void Engine::bury(std::shared_ptr<Connection> c) {
  graveyard_.push_back(std::move(c));
  post([this] {
    std::vector<std::shared_ptr<Connection>> dead;
    enter();
    dead.swap(graveyard_);
    leave();
  });
}

void Engine::activate(Connection& c) {
  if (!c.active) active_.push_back(&c);
  c.active = true;
}

void Engine::wait_writable(Connection& c) {
  activate(c);  // it may have been silent until now; each pass tries again
  if (c.armed && (c.armed_events & POLLOUT) != 0) return;
  rearm();
}

void Engine::rearm() {
  rearm_.exchange(true, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst) && driver_.load(std::memory_order_relaxed) == Driver::background)
    watcher_->wake();
}

std::unique_ptr<llp::Gather> Engine::take_gather() {
  if (gathers_.empty()) return std::make_unique<llp::Gather>();
  auto g = std::move(gathers_.back());
  gathers_.pop_back();
  return g;
}

void Engine::give_gather(std::unique_ptr<llp::Gather> g) {
  if (gathers_.size() < kPooled) gathers_.push_back(std::move(g));
}

std::unique_ptr<std::byte[]> Engine::take_staging() {
  if (stagings_.empty()) return std::unique_ptr<std::byte[]>(new std::byte[kStaging]);
  auto s = std::move(stagings_.back());
  stagings_.pop_back();
  return s;
}

void Engine::give_staging(std::unique_ptr<std::byte[]> s) {
  if (stagings_.size() < kPooled) stagings_.push_back(std::move(s));
}

// One turn for every active stream. Streams that end meanwhile leave active_ but stay alive until their burial, which
// needs the engine.
bool Engine::pass() {
  const bool any = pass_streams();
  return active_pollables_.empty() ? any : pass_pollables() || any;
}

bool Engine::pass_streams() {
  if (active_.empty()) return false;
  if (active_.size() == 1) {
    Connection& c = *active_.front();
    bool any = c.receive();
    if (any) c.last_tick = tick();
    if (c.end() == Connection::End::none && c.has_output() && may_send(c.queue_pair())) any |= c.transmit();
    if (any || c.end() != Connection::End::none) c.queue_pair().stream_progress();
    return any;
  }
  bool any = false;
  const std::size_t n = active_.size();
  for (std::size_t done = 0; done < n && !active_.empty(); done += kBatch) {
    cursor_ %= active_.size();
    any |= pass_many(cursor_, std::min({kBatch, n - done, active_.size()}));
    cursor_ += kBatch;
  }
  return any;
}

bool Engine::pass_many(std::size_t first, std::size_t count) {
  std::array<Connection*, kBatch> turn;
  std::array<llp::Batch::Op, kBatch> ops;
  std::size_t reading = 0;
  for (std::size_t i = 0; i < count; ++i) {
    turn[i] = active_[(first + i) % active_.size()];
    if (turn[i]->readable()) std::swap(turn[i], turn[reading++]);
  }
  for (std::size_t i = 0; i < reading; ++i) ops[i] = {turn[i]->fd(), false, turn[i]->prepare(), 0};
  batch_->run(std::span(ops.data(), reading));
  // Before any stream's octets are handled: they may take away a region that another one was reading into.
  for (std::size_t i = 0; i < reading; ++i) turn[i]->leave_regions();
  bool any = false;
  for (std::size_t i = 0; i < count; ++i) {
    Connection& c = *turn[i];
    const bool more = i < reading && ops[i].result == static_cast<ssize_t>(c.asked());
    bool moved = i < reading && c.completed(ops[i].result);
    if (more) c.receive();  // a stream in full flow gets its budget; the silent ones are asked once
    if (moved) c.last_tick = tick();
    // Ended by another stream's progress: its results are of no interest any more.
    if (!c.active) continue;
    if (c.end() == Connection::End::none && c.has_output() && may_send(c.queue_pair())) moved |= c.transmit();
    if (moved || c.end() != Connection::End::none) c.queue_pair().stream_progress();
    any |= moved;
  }
  return any;
}

// --- fork and exit ---

void Engine::before_fork() {
  enter();
  port_monitor().before_fork();
  qp_numbers().before_fork();
  mutex_.lock();
}

void Engine::after_fork_parent() {
  mutex_.unlock();
  qp_numbers().after_fork_parent();
  port_monitor().after_fork_parent();
  leave();
}

// Nothing of it was in use yet, but for the port monitor's watch: a server that opens its device and then forks its
// workers. True: the child's engine is as new.
bool Engine::begin_anew_in_child() {
  const std::size_t own = port_monitor().fd() >= 0 && watches_.contains(port_monitor().fd()) ? 1 : 0;
  if (!connections_.empty() || !pollables_.empty() || watches_.size() != own || !timers_.empty() || !tasks_.empty()) return false;
  static_cast<void>(watcher_.release());  // closed; its memory is the vanished thread's
  batch_ = llp::make_batch(options().io_uring);
  watches_.clear();
  tokens_.clear();
  watch_ops_.clear();
  waiting_ = 0;
  asleep_ = rearm_ = inbox_ = running_ = false;
  driver_ = Driver::background;
  return true;
}

// The child has none of the parent's threads; what it inherited is closed, so that a peer sees the parent's end.
void Engine::after_fork_child() {
  for (Connection* c : connections_) ::close(c->release_fd());
  for (const auto& [fd, w] : watches_)
    if (w.connection == nullptr) ::close(fd);
  close_pollables_in_child();
  DatagramPort::forget_in_child();
  forget_groups_in_child();
  StartupSocket::close_all_in_child();
  forget_arrivals_in_child();
  qp_numbers().after_fork_child();
  spinning_ = false;  // nobody does
  if (watcher_ != nullptr) watcher_->close_in_child();
  batch_->close_in_child();
  forked_ = running_ && !begin_anew_in_child();
  stats::forget_in_child();
  mutex_.unlock();
  port_monitor().after_fork_child();
  held_.store(0);
}

// A process that ends with unread octets makes the kernel send RST, which can destroy the peer's last message.
void Engine::at_exit() {
  if (forked_ || !running_) return;
  std::vector<int> fds;
  // A signal handler may have called exit() while this very thread held the engine, which then is never let go.
  const auto patience = Clock::now() + std::chrono::milliseconds(200);
  while (!try_enter()) {
    if (Clock::now() >= patience) return;
    sched_yield();
  }
  serve_kicks();  // what was left to the background thread
  for (Connection* c : connections_) {
    if (c->has_output()) c->transmit();
    c->shut_down();
    fds.push_back(c->fd());
  }
  const auto until = Clock::now() + std::chrono::milliseconds(100);
  DatagramPort::finish(until);
  std::array<std::byte, 4096> sink;
  for (const int fd : fds) {
    for (;;) {
      const ssize_t n = recv(fd, sink.data(), sink.size(), MSG_DONTWAIT);
      if (n > 0) continue;
      if (n == 0 || errno != EAGAIN || Clock::now() >= until) break;
      pollfd p{fd, POLLIN, 0};
      if (poll(&p, 1, 20) < 0) break;
    }
  }
  // The engine stays held: the background thread must not touch what is being torn down.
}

}  // namespace ewarp::verbs
