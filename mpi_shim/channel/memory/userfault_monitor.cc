// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/memory/userfault_monitor.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <vector>

#include "mpi_shim/channel/memory/mappings.h"

// Linux 5.11.
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace ewarp::channel {
namespace {

// The last one came with Linux 5.19. Before 5.16 a call could end and hide that another was still under way.
constexpr std::uint64_t kFeatures = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_UNMAP |
                                    UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |
                                    (std::uint64_t{1} << 12);  // UFFD_FEATURE_WP_HUGETLBFS_SHMEM
// Programs that close descriptors and open others begin with the lowest.
constexpr int kHighDescriptor = 1000;

// System calls themselves: a library that stands in for the C library's functions has no part in this.
template <class... Arguments>
long call(long number, Arguments... arguments) {
  return syscall(number, arguments...);
}

void close_fd(int fd) {
  call(SYS_close, fd);
}

// The library that this is part of may not be unloaded below the reader.
void stay_loaded() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&stay_loaded), &here) != 0 && here.dli_fname != nullptr)
    dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

std::string why_not(int error) {
  switch (error) {
    case EPERM:
      return "userfaultfd is forbidden here";
    case ENOSYS:
      return "this kernel or container has no userfaultfd";
    case EINVAL:
      return "this kernel's userfaultfd lacks what is needed (Linux 5.19, write protection)";
    default:
      return std::string("userfaultfd: ") + std::strerror(error);
  }
}

}  // namespace

// --- the start ---

UserfaultMonitor* UserfaultMonitor::start(std::string* why) {
  std::unique_ptr<UserfaultMonitor> made(new UserfaultMonitor);
  if (const int error = made->open(); error != 0) {
    *why = why_not(error);
    return nullptr;
  }
  if (const int error = made->start_reader(); error != 0) {
    close_fd(made->reader_fd_);
    *why = std::string("no thread that reads the events: ") + std::strerror(error);
    return nullptr;
  }
  stay_loaded();
  UserfaultMonitor* const out = made.release();
  if (out->works()) return out;
  *why = "userfaultfd does not tell of munmap()";
  return nullptr;
}

int UserfaultMonitor::open() {
  reader_fd_ = static_cast<int>(call(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
  if (reader_fd_ < 0) return errno;
  uffdio_api api{.api = UFFD_API, .features = kFeatures, .ioctls = 0};
  if (call(SYS_ioctl, reader_fd_, UFFDIO_API, &api) == 0) return 0;
  const int error = errno;
  close_fd(reader_fd_);
  return error;
}

// The reader's descriptor has the number that it was opened with, the application's another.
int UserfaultMonitor::start_reader() {
  long other = call(SYS_fcntl, reader_fd_, F_DUPFD_CLOEXEC, kHighDescriptor);
  if (other < 0) other = call(SYS_fcntl, reader_fd_, F_DUPFD_CLOEXEC, 0);
  if (other < 0) return errno;
  fd_.store(static_cast<int>(other), std::memory_order_relaxed);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread{};
  int error = pthread_create(&thread, nullptr, read_events, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) {
    ready_.wait(-1);
    error = ready_.load();
    if (error == 0)
      pthread_detach(thread);
    else
      pthread_join(thread, nullptr);
  }
  if (error != 0)
    close_fd(static_cast<int>(other));
  else
    close_fd(reader_fd_);
  return error;
}

// With a page of our own. Measures, too.
bool UserfaultMonitor::works() {
  const auto octets = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const page = mmap(nullptr, octets, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  const Range range{reinterpret_cast<std::uintptr_t>(page), reinterpret_cast<std::uintptr_t>(page) + octets};
  const bool watched = register_mapping(range);
  std::uint64_t seen = log_.count();
  munmap(page, octets);
  bool told = false;
  for (int i = 0; watched && i < 1000 && !settled(); ++i) usleep(1000);  // the reader is on its way
  log_.since(seen, [&](const Change& changed) { told = told || changed.memory.overlaps(range); });
  using Clock = std::chrono::steady_clock;
  constexpr int kTimes = 64;
  const auto began = Clock::now();
  for (int i = 0; i < kTimes; ++i) settled();
  settled_ns_ = std::chrono::duration<double, std::nano>(Clock::now() - began).count() / kTimes;
  return watched && told;
}

MemoryMonitor* MemoryMonitor::of_process(std::string* why) {
  static llp::Mutex mutex;
  static UserfaultMonitor* monitor = nullptr;
  static std::string why_none;
  static pid_t process = 0;
  const llp::Guard lock(mutex);
  // A forked child has no reader, and its parent's descriptor tells of its parent.
  if (process != getpid()) {
    monitor = UserfaultMonitor::start(&why_none);
    process = getpid();
  }
  if (monitor == nullptr) *why = why_none;
  return monitor;
}

// --- the reader: no lock, no allocation, and nothing of the C library's that might do so ---

void* UserfaultMonitor::read_events(void* argument) {
  UserfaultMonitor& self = *static_cast<UserfaultMonitor*>(argument);
  const int error = self.take_own_descriptor();
  self.ready_.store(error);
  self.ready_.notify_one();
  if (error != 0) return nullptr;
  prctl(PR_SET_NAME, "memory");
  for (;;) {
    pollfd waiting{.fd = self.reader_fd_, .events = POLLIN, .revents = 0};
    if (call(SYS_ppoll, &waiting, 1, nullptr, nullptr, 0) > 0) self.read_some();
  }
}

// A table of descriptors with this one in it, and no other of the application's files, which would stay open.
int UserfaultMonitor::take_own_descriptor() {
  const auto own = static_cast<unsigned>(reader_fd_);
  if (call(SYS_close_range, own + 1, ~0u, CLOSE_RANGE_UNSHARE) != 0) return errno;
  if (own > 0) call(SYS_close_range, 0u, own - 1, 0u);
  return 0;
}

void UserfaultMonitor::read_some() {
  std::array<uffd_msg, 16> events;
  reading_.store(1);  // before the read: when the caller goes on, it is seen
  const long octets = call(SYS_read, reader_fd_, events.data(), sizeof events);
  for (std::size_t i = 0; octets > 0 && i < static_cast<std::size_t>(octets) / sizeof(uffd_msg); ++i) {
    const auto& told = events[i].arg;
    if (events[i].event == UFFD_EVENT_UNMAP || events[i].event == UFFD_EVENT_REMOVE)
      log_.add({.memory = {told.remove.start, told.remove.end}, .emptied = events[i].event == UFFD_EVENT_REMOVE});
    if (events[i].event != UFFD_EVENT_REMAP) continue;
    log_.add({.memory = {told.remap.from, told.remap.from + told.remap.len}});
    log_.add({.memory = {told.remap.to, told.remap.to + told.remap.len}});
  }
  reading_.store(0, std::memory_order_release);
}

// --- the application's threads ---

bool UserfaultMonitor::settled() {
  if (lost_.load(std::memory_order_relaxed)) return false;
  // Of no octets, which is refused (EINVAL) after the question that matters here.
  uffdio_writeprotect nothing{};
  if (call(SYS_ioctl, fd_.load(std::memory_order_relaxed), UFFDIO_WRITEPROTECT, &nothing) == 0 || errno != EINVAL) {
    if (errno != EAGAIN) lost_.store(true, std::memory_order_relaxed);
    return false;
  }
  // It writes, so that it comes behind what the kernel saw: whoever was let go by the reader had it set reading_
  // before. The reader may be where it was when that one went on in its place.
  for (int turn = 0; reading_.fetch_add(0) != 0; ++turn) {
    if (turn == kTurns) return false;
    call(SYS_sched_yield);
  }
  return true;
}

bool UserfaultMonitor::register_mapping(const Range& mapping) {
  uffdio_register what{};
  what.range = {.start = mapping.begin, .len = mapping.end - mapping.begin};
  what.mode = UFFDIO_REGISTER_MODE_WP;
  return call(SYS_ioctl, fd_.load(std::memory_order_relaxed), UFFDIO_REGISTER, &what) == 0;
}

void UserfaultMonitor::forget_changed() {
  log_.since(seen_, [this](const Change& changed) EWARP_NO_LOCK_ANALYSIS {
    watched_.remove(changed.memory);
    refused_.remove(changed.memory);
    emptied_.remove(changed.memory);
    if (changed.emptied) note_emptied(changed.memory);
  });
}

// What becomes of such memory is not told, so it is looked at again after a while.
bool UserfaultMonitor::known_as_refused(const Range& memory) {
  const auto now = std::chrono::steady_clock::now();
  if (now >= refused_until_ || refused_.size() >= kMostRefused) {
    refused_.clear();
    refused_until_ = now + kRefusing;
  }
  return refused_.covers(memory);
}

void UserfaultMonitor::note_emptied(const Range& memory) {
  emptied_until_ = std::chrono::steady_clock::now() + kEmptying;
  emptied_.add(emptied_.size() < kMostEmptied ? memory : Range::everything());
}

bool UserfaultMonitor::being_emptied(const Range& memory) {
  if (emptied_.size() == 0) return false;
  if (std::chrono::steady_clock::now() >= emptied_until_) emptied_.clear();
  return emptied_.overlap(memory);
}

// Mappings are registered whole: a part would be a mapping of its own afterwards, and mremap() takes but one.
bool UserfaultMonitor::register_mappings(const Range& memory) {
  const std::vector<Range> mappings = private_mappings(memory);
  for (const Range& mapping : mappings)
    if (!register_mapping(mapping)) return false;
  for (const Range& mapping : mappings) watched_.add(mapping);
  return !mappings.empty();
}

bool UserfaultMonitor::watch(const Range& memory) try {
  const llp::Guard lock(mutex_);
  if (lost_.load(std::memory_order_relaxed)) return false;
  forget_changed();
  if (being_emptied(memory)) return false;
  if (watched_.covers(memory)) return true;
  if (known_as_refused(memory)) return false;
  if (register_mappings(memory)) return true;
  refused_.add(memory);
  return false;
} catch (const std::exception&) {  // no memory: what changed is not known any more
  lost_.store(true, std::memory_order_relaxed);
  return false;
}

}  // namespace ewarp::channel
