// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/progress.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <exception>
#include <utility>

namespace ewarp::channel {

namespace {

// Signals belong to the application's threads, but for those that a thread causes itself: the adapter copies from and
// to memory that may be gone, and must hear of that in whichever thread does it. A blocked one would end the process.
class SignalsForOthers {
 public:
  SignalsForOthers() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&blocked, s);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsForOthers() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsForOthers(const SignalsForOthers&) = delete;
  SignalsForOthers& operator=(const SignalsForOthers&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Progress::~Progress() {
  stop();
  if (wake_fd_ >= 0) close(wake_fd_);
}

bool Progress::open() {
  if (wake_fd_ < 0) wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return wake_fd_ >= 0;
}

bool Progress::start() {
  assert(!running());
  if (!open()) return false;
  try {
    const SignalsForOthers inherited;
    thread_ = std::thread([this] { run(); });
  } catch (const std::exception&) {  // no thread to be had, or no memory for one
  }
  return running();
}

void Progress::stop() {
  if (!running()) return;
  stop_.store(true);
  wake();
  thread_.join();
}

namespace {

int look(pollfd* fds, nfds_t count, std::uint64_t ns) {
  const timespec limit{.tv_sec = 0, .tv_nsec = static_cast<long>(ns)};
  return ppoll(fds, count, &limit, nullptr);
}

}  // namespace

void Progress::wake() {
  if (wake_fd_ >= 0) eventfd_write(wake_fd_, 1);
}

void Progress::take_wake() {
  eventfd_t ignored;
  eventfd_read(wake_fd_, &ignored);
}

// Woken where the application computes, this thread would run instead of it, after an interrupt of that CPU from
// another: 30 us where it takes 6 on the CPU of who woke it. Left alone the scheduler keeps it where its timers are,
// which may well be there.
void Progress::keep_off_application() {
  const int cpu = application_cpu_.load(std::memory_order_relaxed);
  if (cpu < 0 || cpu == kept_off_) return;
  kept_off_ = cpu;
  cpu_set_t others = allowed_;
  CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others) > 0) sched_setaffinity(0, sizeof others, &others);
}

// The application polled until the last look, or this thread would not stand aside.
std::uint64_t Progress::until_look() {
  const bool helps = driven_.needs_help();
  look_ns_ = std::clamp(2 * look_ns_, helps ? kLookForHelpNs : kLookNs, helps ? kLookNs : kLongestLookNs);
  return look_ns_;
}

void Progress::run() {
  pthread_setname_np(pthread_self(), "channel");
  sched_getaffinity(0, sizeof allowed_, &allowed_);
  driven_.drive(true);
  std::uint64_t seen = polls_.load(std::memory_order_relaxed);
  while (!stop_.load()) {
    const bool aside = armed_.load() == Wake::nothing;
    keep_off_application();
    pollfd fds[] = {{wake_fd_, POLLIN, 0}, {driven_.connection_fd(), POLLIN, 0}, {driven_.completion_fd(), POLLIN, 0}};
    const int n = aside ? look(fds, 3, until_look()) : poll(fds, 3, driven_.patience_ms());
    if (n > 0) wakeups_.fetch_add(1);
    if (fds[0].revents != 0) take_wake();
    if (fds[2].revents != 0) driven_.take_events();
    const std::uint64_t polls = polls_.load(std::memory_order_relaxed);
    const bool polled = inside_.load() > 0 || (n == 0 && polls != seen);
    seen = polls;
    if (polled && fds[0].revents == 0 && fds[1].revents == 0) continue;
    if (aside) takeovers_.fetch_add(1);
    look_ns_ = 0;
    driven_.drive(n <= 0 || fds[0].revents != 0 || fds[1].revents != 0);
  }
}

}  // namespace ewarp::channel
