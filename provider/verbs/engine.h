// The engine: drives every stream of this process (design.md section 3). Whoever holds it may touch the streams: an
// application thread for one non-blocking pass, or the background thread.
//
// Lock order, outermost first: engine, work queue (SQ, RQ or SRQ), CQ. Registration never takes the engine: an
// application's memory hooks may deregister from inside free() while this thread holds it.
#pragma once

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "llp/batch.h"
#include "llp/gather.h"
#include "llp/watcher.h"
#include "provider/verbs/patience.h"
#include "provider/verbs/pollable.h"
#include "provider/verbs/reactor.h"

namespace ewarp::verbs {

class Connection;
class Kickable;
class QueuePair;

class Engine final : public Reactor {
 public:
  Engine();

  // --- holding the engine ---
  bool try_enter();
  void enter();
  // Also serves what was kicked meanwhile.
  void leave();
  // Serves them now. Requires: held.
  void serve_kicks();

  // --- application threads ---

  // ibv_poll_cq() found nothing: one pass, if the engine is free. A thread that polls an armed CQ is about to sleep and
  // does not count as a driver.
  void application_pass(bool armed);
  // ibv_req_notify_cq(): the application is likely to sleep now.
  void application_may_sleep();
  // A queue pair (or an SRQ) has new work: it is served now, by this thread, the holder, or a background thread that spins.
  void kick(Kickable& object);
  // The same for much to send: unless the application is known to wait for such posts, the background thread does it, and
  // this thread goes on at once.
  void kick_large(QueuePair& qp);
  // Whether this holder may send for a queue pair that has much to send. An application thread may when it polls
  // persistently, for then it waits. Engine held.
  bool may_send(const QueuePair& qp) const;
  // Application threads make the passes, or did until takeover_us ago.
  bool application_drives() const { return driver_.load(std::memory_order_relaxed) == Driver::application; }

  // --- streams; all need the engine held ---
  void add(Connection& connection);
  // Takes it out of every list; no call reaches it afterwards.
  void remove(Connection& connection);
  // Destroys the object once nothing of the current pass refers to it.
  void bury(std::shared_ptr<Connection> connection);
  // The stream has output that did not go out: it stays active, and the kernel says when it can go on.
  void wait_writable(Connection& connection);
  // Sockets of datagrams; engine held.
  void add(const std::shared_ptr<Pollable>& pollable);
  void remove(Pollable& pollable);  // before its fd is closed
  void wait_writable(Pollable& pollable);
  // What the kernel watches for some stream has to be looked at again.
  void rearm();
  // Reads and discards until the peer's FIN or close_timeout, then closes: what was sent arrives, a Terminate included.
  void drain_and_close(int fd);
  void close_now(int fd);
  unsigned tick() const { return tick_.load(std::memory_order_relaxed); }

  static constexpr std::size_t kStaging = 128 * 1024;
  std::unique_ptr<llp::Gather> take_gather();
  void give_gather(std::unique_ptr<llp::Gather> gather);
  std::unique_ptr<std::byte[]> take_staging();
  void give_staging(std::unique_ptr<std::byte[]> staging);

  // --- Reactor ---
  void post(std::function<void()> task) override;
  std::uint64_t add_timer(Clock::time_point when, std::function<void()> task) override;
  void cancel_timer(std::uint64_t id) override;
  void watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> on_ready) override;
  void unwatch(int fd) override;

  bool forked() const { return forked_; }
  // fork(): a consistent state for the child, which then closes what it inherited.
  void before_fork();
  void after_fork_parent();
  void after_fork_child();
  // The process ends: what was handed over still leaves (bounded).
  void at_exit();

 private:
  enum class Driver { background, application };
  struct Watch {
    std::uint64_t token = 0;
    std::function<void(std::uint32_t)> on_ready;  // empty: a connection
    Connection* connection = nullptr;
  };
  struct WatchOp {
    int fd;
    std::uint32_t events;  // 0: disarm
    std::uint64_t token;
  };

  // Sockets silent for so many ticks (of takeover_us) leave the active set, if it has more than kAlwaysActive.
  static constexpr unsigned kSilentTicks = 4;
  static constexpr std::size_t kAlwaysActive = 4;

  void start_thread();
  bool begin_anew_in_child();
  void activate(Connection& connection);
  void run();
  bool pass();
  bool pass_streams();
  bool pass_many(std::size_t first, std::size_t count);
  bool background_pass();
  void housekeeping(bool all);
  void sleep(std::chrono::nanoseconds limit, bool aside = false);
  void wake();
  void push(Kickable& object);
  void hand_over(QueuePair& qp);
  bool step_aside();
  bool wait_aside(std::chrono::nanoseconds limit);
  void arm_active();
  bool demote_silent();
  void arm(Connection& connection, std::uint32_t events);
  void activate(Pollable& pollable);
  bool pass_pollables();
  void arm_pollables();
  bool demote_pollables();
  void arm(Pollable& pollable, std::uint32_t events);
  void close_pollables_in_child();
  void handle_ready(std::span<const llp::Watcher::Ready> ready);
  void apply_watch_ops();
  void run_tasks();
  void run_timers();
  std::chrono::nanoseconds until_next_timer(std::chrono::nanoseconds limit);
  void drain(int fd, std::uint64_t timer);

  std::atomic<int> held_{0};
  std::atomic<int> waiting_{0};     // threads in enter()
  std::atomic<unsigned> signs_{0};  // of life, of those threads
  std::atomic<Kickable*> kicks_{nullptr};

  // Engine held.
  std::vector<Connection*> active_;
  std::unordered_set<Connection*> connections_;
  std::size_t cursor_ = 0;
  std::vector<std::shared_ptr<Connection>> graveyard_;
  std::vector<std::shared_ptr<Pollable>> pollables_;
  std::vector<Pollable*> active_pollables_;
  std::size_t pollable_cursor_ = 0;
  std::vector<std::unique_ptr<llp::Gather>> gathers_;
  std::vector<std::unique_ptr<std::byte[]>> stagings_;
  std::unique_ptr<llp::Batch> batch_;

  // Who drives.
  std::atomic<Driver> driver_{Driver::background};
  std::atomic<std::uint64_t> application_passes_{0};
  std::atomic<std::uint64_t> handed_until_{0};  // an application that made fewer has handed over and computes
  std::atomic<bool> asleep_{false};
  std::atomic<bool> spinning_{false};  // the background thread waits for work, and not in the kernel
  std::atomic<bool> rearm_{false};
  std::atomic<bool> inbox_{false};
  std::atomic<unsigned> tick_{0};
  // Background thread only.
  bool background_holds_ = false;  // engine held
  std::uint64_t window_application_ = 0, window_background_ = 0;
  Clock::time_point window_start_{}, aside_since_{}, ticked_{};
  unsigned windows_needed_ = 1, windows_seen_ = 0;
  Patience idle_, aside_;  // without work; while the application drives
  std::chrono::nanoseconds takeover_{};

  // Background thread's inbox.
  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
  std::map<std::pair<Clock::time_point, std::uint64_t>, std::function<void()>> timers_;
  std::unordered_map<std::uint64_t, Clock::time_point> timer_times_;
  std::uint64_t next_id_ = 1;
  std::vector<WatchOp> watch_ops_;
  std::unordered_map<int, Watch> watches_;
  std::unordered_map<std::uint64_t, int> tokens_;

  std::unique_ptr<llp::Watcher> watcher_;
  std::atomic<bool> running_{false};
  bool forked_ = false;
};

Engine& engine();

}  // namespace ewarp::verbs
