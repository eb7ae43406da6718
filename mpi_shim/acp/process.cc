// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/process.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

namespace ewarp::acp {
namespace {

constexpr std::uint64_t kLookNs = 1'000'000;       // between two looks at what the coordinator says
constexpr std::uint64_t kSpinNs = 1'000'000;       // where several CPUs may be used
constexpr std::uint64_t kLeaveNs = 2'000'000'000;  // for what is under way when some are gone
constexpr int kNapMs = 1;                          // where nothing will tell that something has come
constexpr int kSleepMs = 1000;                     // where something will
constexpr int kThreadSleepMs = 100;                // until it looks whether it has to end

std::uint64_t chosen_spin(std::int32_t spin_us) {
  if (spin_us >= 0) return static_cast<std::uint64_t>(spin_us) * 1000;
  cpu_set_t cpus;
  return sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) > 1 ? kSpinNs : 0;
}

// A thread of the library's. Signals are the program's threads', but those of faults: the adapter copies to and from
// memory that may be gone.
void become(const char* name) {
  pthread_setname_np(pthread_self(), name);
  sigset_t all;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

void Process::FreeArea::operator()(Area* area) const {
  std::free(area);
}

Process::Process(const Options& options, const JobPlace& place)
    : options_(options), place_(place), spin_ns_(chosen_spin(options.spin_us)) {}

std::unique_ptr<Process> Process::join(const Options& options, const JobPlace& place, std::string* why) {
  std::unique_ptr<Process> out(new Process(options, place));
  {
    const llp::Guard guard(out->mutex);
    *why = out->open();
  }
  if (!why->empty()) return nullptr;
  out->start_threads();
  return out;
}

std::string Process::open() {
  const bool one_host = place_.root.empty() || place_.root.starts_with("127.");
  std::string why;
  transport_ = open_transport(options_.transport,
                              {.device = options_.device,
                               .one_host = one_host,
                               .rank = place_.rank,
                               .procs = place_.procs,
                               .qkey = place_.qkey(),
                               .secret = place_.secret},
                              &why);
  if (transport_ == nullptr) return why;
  peers_ = std::make_unique<PeerTable>(place_.procs);
  area_.reset(static_cast<Area*>(std::calloc(1, sizeof(Area) + options_.starter_size)));
  if (area_ == nullptr) throw std::bad_alloc();
  if (!transport_->register_memory(area_.get(), sizeof(Area) + options_.starter_size, &area_region_))
    return std::string("ibv_reg_mr: ") + std::strerror(errno);
  path_.reset(new Path{*transport_, *peers_, place_.rank});
  channels_ = std::make_unique<Channels>(*path_, *area_, options_, static_cast<Channels::Listener&>(*this));
  regions_ = std::make_unique<OwnRegions>(*path_, *area_, options_.starter_size, area_region_);
  accesses_ = std::make_unique<Accesses>(*path_, *regions_, options_.starter_size);
  Contact own{};
  transport_->introduce(&own);
  own.rkey = area_region_.rkey;
  own.address = reinterpret_cast<std::uintptr_t>(area_.get());
  why = member_.meet(place_, own, *peers_);
  return why.empty() ? check_peers() : why;
}

std::string Process::check_peers() {
  for (std::uint32_t rank = 0; rank < place_.procs; ++rank)
    if (!transport_->fits((*peers_)[rank].contact))
      return "rank " + std::to_string(rank) + " and this one have not the same transport; " +
             option_variable("transport") + " can be set to one that both have";
  return {};
}

void Process::start_threads() {
  if (options_.progress_thread) thread_ = std::thread(&Process::run_progress_thread, this);
  if (transport_->callers() < 0) return;
  over_ = eventfd(0, EFD_CLOEXEC);
  if (over_ < 0) throw std::system_error(errno, std::generic_category());
  answering_ = std::thread(&Process::run_answering_thread, this);
}

void Process::rest() {
  ending_.store(true, std::memory_order_relaxed);
  const std::uint64_t one = 1;
  if (answering_.joinable()) (void)!write(over_, &one, sizeof one);
  if (answering_.joinable()) answering_.join();
  if (thread_.joinable()) thread_.join();
}

// The child's one thread; whoever held the lock is not there.
void Process::forget_in_child() EWARP_NO_LOCK_ANALYSIS {
  member_.close();
}

Process::~Process() {
  rest();
  const llp::Guard guard(mutex);
  accesses_.reset();
  regions_.reset();
  channels_.reset();
  if (over_ >= 0) close(over_);
  if (peers_ != nullptr)
    for (std::uint32_t rank = 0; rank < place_.procs; ++rank) transport_->forget((*peers_)[rank]);
  if (area_region_.handle != nullptr) transport_->deregister(area_region_.handle);
}

void Process::progress() {
  const std::uint64_t now = monotonic_ns();
  if (now - looked_ > kLookNs) {
    looked_ = now;
    look_at_job();
  }
  do {
    channels_->advance(now);
    accesses_->advance();
  } while (poll_completions(now));
}

// True: there may be more to do.
bool Process::poll_completions(std::uint64_t now) {
  Completion all[kPolled];
  const int n = transport_->poll(all, kPolled);
  for (int i = 0; i < n; ++i) {
    const Completion& c = all[i];
    if (c.notice)
      channels_->noticed(Immediate::parse(c.immediate));
    else if (subject_of(c.id) == Subject::access)
      accesses_->completed(c);
    else
      channels_->completed(c, now);
  }
  return n > 0;
}

void Process::look_at_job() {
  if (!member_.look(*this)) lose_everybody();
}

void Process::gone(std::uint32_t rank) {
  if (rank >= place_.procs || (*peers_)[rank].gone) return;
  (*peers_)[rank].gone = somebody_gone_ = true;
  while (poll_completions(monotonic_ns())) continue;  // what it did before still counts
  transport_->lose((*peers_)[rank]);
  channels_->gone(rank);
  accesses_->gone(rank);
}

// The other one may wait for what was lost, and hears of it from the coordinator.
void Process::lost(std::uint32_t rank) {
  member_.part(rank);
}

void Process::parted(std::uint32_t rank) {
  if (rank >= place_.procs || rank == place_.rank || (*peers_)[rank].gone) return;
  while (poll_completions(monotonic_ns())) continue;  // what it did before still counts
  channels_->part(rank);
}

// The coordinator has ended, and with it the job.
void Process::lose_everybody() {
  for (std::uint32_t rank = 0; rank < place_.procs; ++rank)
    if (rank != place_.rank) gone(rank);
  somebody_gone_ = true;
}

void Process::aborted() {
  std::fprintf(stderr, "acp: rank %u ends: another process of the job called acp_abort()\n", place_.rank);
  std::_Exit(1);
}

// The lock is open for a moment, or for as long as this sleeps.
void Process::pause(std::uint64_t began) {
  if (monotonic_ns() - began >= spin_ns_) {
    const bool told = options_.mode == Mode::immediate && !channels_->restless() && !accesses_->restless();
    return sleep(told ? kSleepMs : kNapMs);
  }
  mutex.unlock();
  sched_yield();
  mutex.lock();
}

// One thread at a time sleeps on the descriptors: of two, one could take the event that the other needs.
void Process::sleep(int timeout_ms) {
  if (asleep_) {
    woken_.wait_for(mutex, std::chrono::milliseconds(timeout_ms));
    return;
  }
  transport_->arm();
  if (!poll_completions(monotonic_ns())) sleep_for_all(timeout_ms);
  woken_.notify_all();
}

void Process::sleep_for_all(int timeout_ms) {
  pollfd all[] = {{transport_->descriptor(), POLLIN, 0}, {member_.descriptor(), POLLIN, 0}};
  asleep_ = true;
  mutex.unlock();
  poll(all, 2, timeout_ms);
  mutex.lock();
  asleep_ = false;
  if (all[0].revents != 0) transport_->drain();
  if (all[1].revents != 0) looked_ = 0;
}

int Process::meet() {
  const std::uint64_t before = member_.meetings();
  member_.arrive();
  wait_until([&]() EWARP_REQUIRES(mutex) { return somebody_gone_ || member_.meetings() != before; });
  return member_.meetings() != before ? 0 : ECONNRESET;
}

int Process::leave() {
  const int error = meet();
  if (error == 0) return member_.leave(), 0;
  const std::uint64_t until = monotonic_ns() + kLeaveNs;
  wait_until([&]() EWARP_REQUIRES(mutex) { return channels_->drained() || monotonic_ns() > until; });
  return error;
}

void Process::abort_job() {
  const llp::Guard guard(mutex);
  member_.abort();
}

// So that a process that computes can be connected to.
void Process::run_answering_thread() {
  become("acp-cm");
  for (int timeout_ms = -1; !ending_.load(std::memory_order_relaxed);) {
    pollfd all[] = {{transport_->callers(), POLLIN, 0}, {over_, POLLIN, 0}};
    poll(all, 2, timeout_ms);
    const llp::Guard guard(mutex);
    timeout_ms = transport_->serve();
  }
}

void Process::run_progress_thread() {
  become("acp");
  const llp::Guard guard(mutex);
  while (!ending_.load(std::memory_order_relaxed)) {
    if (waiting_ != 0) {
      // Another thread makes progress, and this one would be in its way.
      woken_.wait_for(mutex, std::chrono::milliseconds(kNapMs));
      continue;
    }
    progress();
    sleep(options_.mode == Mode::paper || channels_->restless() || accesses_->restless() ? kNapMs : kThreadSleepMs);
  }
}

}  // namespace ewarp::acp
