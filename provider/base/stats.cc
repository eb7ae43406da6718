// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/base/stats.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <new>
#include <type_traits>

#include <fmt/format.h>

#include "llp/mutex.h"
#include "provider/base/log.h"
#include "provider/base/options.h"

namespace ewarp::stats {
namespace {

constexpr char kDefaultParent[] = "/dev/shm";
constexpr char kDefaultName[] = "etherwarp-";

static_assert(Counter::is_always_lock_free, "pages are shared between processes");
static_assert(kMaxQps % 64 == 0);

struct State {
  // The page in this process's memory. The address is chosen once and never given back; what is mapped there changes.
  std::atomic<Page*> address{nullptr};
  std::atomic<bool> ready{false};
  llp::Mutex mutex;  // makes the page; a forked child's is a new one
  pid_t creator = 0;
  char path[256] = "";  // of the file, empty if the page is private
  std::array<std::atomic<std::uint64_t>, kMaxQps / 64> taken{};
  std::atomic<bool> fork_handler{false};
  bool exit_handler = false;
};

// Background threads may count until the very end.
static_assert(std::is_trivially_destructible_v<State>);
constinit State the_state;
State& state() {
  return the_state;
}

std::uint64_t namespace_inode(const char* file) {
  struct stat st;
  return ::stat(file, &st) == 0 ? st.st_ino : 0;
}

// --- writing --------------------------------------------------------------------------------------------------------

// Makes the pages exist, so that a full tmpfs is an error here and not a SIGBUS at a counter later.
bool populate(void* from, std::size_t octets) {
  const auto size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(from) / size * size;
  const auto last = reinterpret_cast<std::uintptr_t>(from) + octets;
  return madvise(reinterpret_cast<void*>(first), last - first, MADV_POPULATE_WRITE) == 0;
}

// The run directory belongs to us alone, or it is not used: who can rename files there could redirect our writes.
bool prepare_directory(const std::string& directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat st;
  return lstat(directory.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 022) == 0;
}

using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;

std::vector<std::string> entries(const std::string& directory) {
  std::vector<std::string> out;
  const Directory dir(opendir(directory.c_str()), closedir);
  if (!dir) return out;
  while (const dirent* e = readdir(dir.get()))
    if (e->d_name[0] != '.') out.emplace_back(e->d_name);
  std::sort(out.begin(), out.end());
  return out;
}

// The process whose page is called so; 0: that is no name of a page.
int pid_of(const std::string& name) {
  int pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  return error == std::errc{} && end == name.data() + name.size() && pid > 0 ? pid : 0;
}

enum class LeftBehind : std::uint8_t { no, incomplete_or_kept, unwanted };

// no: it comes from another pid namespace, where its process may be alive, or is no page at all: $ETHERWARP_RUNDIR may
// name any directory. Else a dead process of this number left it.
LeftBehind left_behind(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return LeftBehind::no;
  std::uint32_t magic = 0, kept = 0;
  std::uint64_t space = 0;
  struct stat st {};
  // The magic is written last.
  const bool page = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == sizeof(Page) &&
                    pread(fd, &magic, sizeof magic, 0) == sizeof magic && (magic == kMagic || magic == 0);
  static_assert(sizeof kept == sizeof Page::keep);
  if (pread(fd, &kept, sizeof kept, offsetof(Page, keep)) != sizeof kept) kept = 0;
  if (pread(fd, &space, sizeof space, offsetof(Page, pid_namespace)) != sizeof space) space = 0;
  close(fd);
  if (!page || (space != 0 && space != namespace_inode("/proc/self/ns/pid"))) return LeftBehind::no;
  return space == 0 || kept != 0 ? LeftBehind::incomplete_or_kept : LeftBehind::unwanted;
}

// What killed programs have left goes with the next one that begins. What is not whole may be that of a program in
// another namespace that begins, too.
void remove_left_behind(const std::string& directory) {
  for (const auto& name : entries(directory)) {
    const int pid = pid_of(name);
    if (pid == 0 || kill(pid, 0) == 0 || errno != ESRCH) continue;
    const std::string path = directory + "/" + name;
    if (left_behind(path) == LeftBehind::unwanted) unlink(path.c_str());
  }
}

int create_file(const std::string& path) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 || errno != EEXIST) return fd;
    if (left_behind(path) == LeftBehind::no) break;
    unlink(path.c_str());
  }
  errno = EEXIST;
  return -1;
}

// Maps the file over the page's address. False: nothing has changed.
bool publish(State& s) {
  const std::string directory = run_directory();
  const std::string path = fmt::format("{}/{}", directory, getpid());
  if (path.size() >= sizeof s.path || !prepare_directory(directory)) return false;
  remove_left_behind(directory);
  const int fd = create_file(path);
  if (fd < 0) return false;
  // First elsewhere, to learn whether the memory can be had.
  bool good = ftruncate(fd, sizeof(Page)) == 0;
  if (good) {
    void* trial = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    good = trial != MAP_FAILED && populate(trial, offsetof(Page, qps));
    if (trial != MAP_FAILED) munmap(trial, sizeof(Page));
  }
  good =
      good && mmap(s.address.load(), sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
  close(fd);
  if (!good) {
    unlink(path.c_str());
    return false;
  }
  memcpy(s.path, path.c_str(), path.size() + 1);
  return true;
}

void remove_at_exit() {
  State& s = state();
  // A child that exits without exec runs this too: the file is its parent's.
  if (s.creator != getpid() || s.path[0] == '\0' || s.address.load()->keep != 0) return;
  unlink(s.path);
  s.path[0] = '\0';
}

void fill(Page& page) {
  page.version = kVersion;
  page.size = sizeof(Page);
  page.pid = getpid();
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  page.start_ns = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
  const int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    const auto n = read(fd, page.command, sizeof page.command - 1);
    page.command[n > 0 ? n - 1 : 0] = '\0';  // without its newline
    close(fd);
  }
  page.pid_namespace = namespace_inode("/proc/self/ns/pid");
  page.keep = options().stats_keep ? 1 : 0;
  // Last, so that a reader never takes a half-filled page for a whole one.
  std::atomic_ref<std::uint32_t>(page.magic).store(kMagic, std::memory_order_release);
}

Page* private_page() {
  void* p = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return static_cast<Page*>(p);
}

// What was counted or named before the file was mapped would be lost in a child: device names are worth keeping.
struct Names {
  std::uint32_t count;
  std::array<std::array<char, 64>, kMaxDevices> name;
  std::array<std::array<char, 16>, kMaxDevices> interface;
};

void save(const Page& page, Names& names) {
  names.count = page.device_count;
  for (std::size_t i = 0; i < kMaxDevices; ++i) {
    memcpy(names.name[i].data(), page.devices[i].name, sizeof page.devices[i].name);
    memcpy(names.interface[i].data(), page.devices[i].interface, sizeof page.devices[i].interface);
  }
}

void restore(Page& page, const Names& names) {
  page.device_count = names.count;
  for (std::size_t i = 0; i < kMaxDevices; ++i) {
    memcpy(page.devices[i].name, names.name[i].data(), sizeof page.devices[i].name);
    memcpy(page.devices[i].interface, names.interface[i].data(), sizeof page.devices[i].interface);
  }
}

void make_page(State& s) {
  if (!s.fork_handler.exchange(true)) pthread_atfork(nullptr, nullptr, forget_in_child);
  const llp::Guard lock(s.mutex);
  if (s.ready.load(std::memory_order_relaxed)) return;
  if (s.address.load() == nullptr) s.address.store(private_page());
  Names names{};
  save(*s.address.load(), names);
  if (options().stats && !publish(s))
    log::warn(
        "counters of this process cannot be seen by `etherwarp stat`: {}: {}; ETHERWARP_RUNDIR names another directory",
        run_directory(), strerror(errno));
  restore(*s.address.load(), names);
  fill(*s.address.load());
  s.creator = getpid();
  if (!s.exit_handler) {
    s.exit_handler = true;
    atexit(remove_at_exit);
  }
  s.ready.store(true, std::memory_order_release);
}

// --- reading --------------------------------------------------------------------------------------------------------

// Its name and its owner are one user's: so each user has one, and anybody may make directories in the parent.
bool is_run_directory(const std::string& name) {
  if (!name.starts_with(kDefaultName)) return false;
  struct stat st;
  const std::string path = fmt::format("{}/{}", kDefaultParent, name);
  return lstat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && name == fmt::format("{}{}", kDefaultName, st.st_uid);
}

std::vector<std::string> run_directories() {
  if (const char* named = secure_getenv("ETHERWARP_RUNDIR"); named != nullptr && named[0] != '\0') return {named};
  std::vector<std::string> out;
  for (const auto& name : entries(kDefaultParent))
    if (is_run_directory(name)) out.push_back(fmt::format("{}/{}", kDefaultParent, name));
  return out;
}

bool alive(const Page& page) {
  if (page.pid_namespace != namespace_inode("/proc/self/ns/pid")) return true;  // cannot be told from here
  return kill(page.pid, 0) == 0 || errno == EPERM;
}

// It ends, and is of printable ASCII: with other octets its owner could write to the reader's terminal.
template <std::size_t N>
void tidy(char (&text)[N]) {
  text[N - 1] = '\0';
  for (char* c = text; *c != '\0'; ++c)
    if (*c < ' ' || *c > '~') *c = '?';
}

// Empty: good; else why not. The octets come from another process: nothing in them is believed.
std::string read_page(int fd, Page& page) {
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return "not a regular file";
  auto* to = reinterpret_cast<char*>(&page);
  if (pread(fd, to, sizeof(Page), 0) != static_cast<ssize_t>(sizeof(Page)) || page.magic != kMagic)
    return "not a page of counters";
  if (page.version != kVersion || page.size != sizeof(Page)) return "written by another version of EtherWARP";
  page.device_count = std::min<std::uint32_t>(page.device_count, kMaxDevices);
  tidy(page.command);
  tidy(page.poller);
  for (auto& d : page.devices) tidy(d.name), tidy(d.interface);
  for (auto& q : page.qps) tidy(q.peer);
  return {};
}

}  // namespace

Page& page() {
  State& s = state();
  if (!s.ready.load(std::memory_order_acquire)) make_page(s);
  return *s.address.load(std::memory_order_relaxed);
}

QpPage* take_qp_slot() {
  Page& p = page();
  State& s = state();
  for (std::size_t word = 0; word < s.taken.size(); ++word) {
    std::uint64_t bits = s.taken[word].load();
    while (bits != ~std::uint64_t{0}) {
      const auto bit = static_cast<unsigned>(std::countr_one(bits));
      const std::uint64_t mask = std::uint64_t{1} << bit;
      bits = s.taken[word].fetch_or(mask);
      if ((bits & mask) != 0) continue;
      QpPage& slot = p.qps[word * 64 + bit];
      if (!populate(&slot, sizeof slot)) {
        s.taken[word].fetch_and(~mask);
        return nullptr;
      }
      return new (&slot) QpPage{};
    }
  }
  return nullptr;
}

void release_qp_slot(QpPage* slot) {
  if (slot == nullptr) return;
  State& s = state();
  const auto index = static_cast<std::size_t>(slot - s.address.load()->qps);
  slot->number.store(0);
  s.taken[index / 64].fetch_and(~(std::uint64_t{1} << (index % 64)));
}

std::string run_directory() {
  if (const char* named = secure_getenv("ETHERWARP_RUNDIR"); named != nullptr && named[0] != '\0') return named;
  return fmt::format("{}/{}{}", kDefaultParent, kDefaultName, geteuid());
}

// Runs between fork() and whatever the child does: no allocation, no lock.
void forget_in_child() {
  State& s = state();
  Page* const p = s.address.load();
  if (s.creator == getpid()) return;
  // Another thread of the parent may have held it, with the page half made; only this thread exists here.
  s.mutex.renew_in_child();
  if (p == nullptr) return;
  static Names names;  // static: a large object on an unknown stack
  save(*p, names);
  if (mmap(p, sizeof(Page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
    return;
  restore(*p, names);
  s.path[0] = '\0';
  s.ready.store(false);
}

std::vector<Snapshot> snapshots(std::vector<std::string>* unreadable) {
  std::vector<Snapshot> out;
  for (const auto& directory : run_directories()) {
    std::size_t files = 0;  // that stay
    for (const auto& name : entries(directory)) {
      if (pid_of(name) == 0) continue;
      if (files == kMostFiles) {
        if (unreadable != nullptr)
          unreadable->push_back(fmt::format("{}: files beyond the first {}", directory, kMostFiles));
        break;
      }
      const std::string path = directory + "/" + name;
      const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
      if (fd < 0) continue;
      auto page = std::make_unique<Page>();
      const std::string problem = read_page(fd, *page);
      struct stat st {};
      fstat(fd, &st);
      close(fd);
      ++files;
      if (!problem.empty()) {
        if (unreadable != nullptr) unreadable->push_back(fmt::format("{}: {}", path, problem));
        continue;
      }
      const bool ended = !alive(*page);
      if (ended && page->keep == 0) {
        if (st.st_uid == geteuid() && unlink(path.c_str()) == 0) --files;
        continue;
      }
      out.push_back({std::move(page), path, st.st_uid, ended});
    }
  }
  return out;
}

}  // namespace ewarp::stats
