// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Fails one system call of a program, or lists those that it makes. The program is unchanged: the kernel asks this
// process about each call (seccomp user notification; seccomp_unotify(2)), so a call that liburing makes without the C
// library is seen too.
//
// A point is where EtherWARP made the call: number of the call, module and offset of the first return address on the
// stack that lies in a module of EtherWARP. Calls of libibverbs, librdmacm and the program pass.
//
//   ewarp_inject_calls --report FILE [--fail NUMBER:MODULE+OFFSET:N:ERRNO] PROGRAM ARGUMENTS...
//
// FILE: a line 'NUMBER MODULE+OFFSET COUNT' for each point; with --fail the line 'failed' if the Nth call of the point
// was failed. The exit status is the program's; 128 and the signal's number if one ended it; 120 where the kernel does
// not allow notification.
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr int kNoNotification = 120;

// Left out: calls without a failure that a caller can meet (getpid, rt_sigaction), those that end something (close,
// munmap, exit: nobody can do more than go on, and the thing would stay), ioctl (of an interface it says only that it
// is gone), and futex, whose unexpected errors end the process in the C library.
constexpr std::array kCalls = {SYS_read,
                               SYS_write,
                               SYS_readv,
                               SYS_writev,
                               SYS_pread64,
                               SYS_openat,
                               SYS_open,
                               SYS_newfstatat,
                               SYS_fstat,
                               SYS_statx,
                               SYS_getdents64,
                               SYS_readlink,
                               SYS_readlinkat,
                               SYS_mkdir,
                               SYS_mkdirat,
                               SYS_unlink,
                               SYS_unlinkat,
                               SYS_rename,
                               SYS_flock,
                               SYS_access,
                               SYS_faccessat2,
                               SYS_fcntl,
                               SYS_dup,
                               SYS_dup2,
                               SYS_dup3,
                               SYS_pipe2,
                               SYS_socketpair,
                               SYS_socket,
                               SYS_connect,
                               SYS_bind,
                               SYS_listen,
                               SYS_accept,
                               SYS_accept4,
                               SYS_getsockname,
                               SYS_getpeername,
                               SYS_setsockopt,
                               SYS_getsockopt,
                               SYS_shutdown,
                               SYS_sendto,
                               SYS_sendmsg,
                               SYS_sendmmsg,
                               SYS_recvfrom,
                               SYS_recvmsg,
                               SYS_recvmmsg,
                               SYS_poll,
                               SYS_ppoll,
                               SYS_eventfd2,
                               SYS_timerfd_create,
                               SYS_timerfd_settime,
                               SYS_epoll_create1,
                               SYS_epoll_ctl,
                               SYS_epoll_wait,
                               SYS_epoll_pwait,
                               SYS_epoll_pwait2,
                               SYS_io_uring_setup,
                               SYS_io_uring_enter,
                               SYS_io_uring_register,
                               SYS_mmap,
                               SYS_mprotect,
                               SYS_mremap,
                               SYS_brk,
                               SYS_madvise,
                               SYS_mlock,
                               SYS_mincore,
                               SYS_memfd_create,
                               SYS_ftruncate,
                               SYS_fallocate,
                               SYS_clone,
                               SYS_clone3,
                               SYS_getrandom,
                               SYS_userfaultfd,
                               SYS_prlimit64,
                               SYS_sched_setaffinity,
                               SYS_sched_getaffinity,
                               SYS_process_vm_readv,
                               SYS_process_vm_writev,
                               SYS_nanosleep,
                               SYS_clock_nanosleep};

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(kNoNotification);
}

// --- the program that is watched ---

// What the two processes share before the program begins.
struct Meeting {
  std::atomic<int> listener = -1;  // its number in the child
  std::atomic<bool> taken = false;
};

sock_filter statement(unsigned code, std::uint32_t k) {
  return {static_cast<std::uint16_t>(code), 0, 0, k};
}

// From here on each of kCalls waits for an answer.
int watch_this_thread() {
  std::vector<sock_filter> program;
  program.push_back(statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (const long call : kCalls) {
    program.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, static_cast<std::uint32_t>(call)});
    program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
  }
  program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) die("no_new_privs");
  const long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                          SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &filter);
  if (fd < 0) die("seccomp");
  return static_cast<int>(fd);
}

// --- where a call comes from ---

struct Mapping {
  std::uint64_t from, to, base;
  std::string module;  // the file's name without its folder
  bool ours, passed;   // passed: its callers are asked instead
};

bool begins_with(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with;
}

class Modules {
 public:
  explicit Modules(pid_t pid) : pid_(pid) {}

  const Mapping* at(std::uint64_t address) const {
    const auto after = std::upper_bound(mappings_.begin(), mappings_.end(), address,
                                        [](std::uint64_t a, const Mapping& m) { return a < m.from; });
    if (after == mappings_.begin()) return nullptr;
    const Mapping& m = *std::prev(after);
    return address < m.to ? &m : nullptr;
  }

  void read() {
    mappings_.clear();
    std::ifstream in("/proc/" + std::to_string(pid_) + "/maps");
    std::map<std::string, std::uint64_t> bases;
    for (std::string line; std::getline(in, line);) {
      std::uint64_t from = 0, to = 0, offset = 0;
      char rights[5] = "", path[512] = "";
      if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %*s %511s", &from, &to, rights,
                      &offset, path) < 5)
        continue;
      const std::string_view whole = path;
      const auto slash = whole.rfind('/');
      if (slash == std::string_view::npos) continue;
      const std::string module(whole.substr(slash + 1));
      if (!bases.contains(module)) bases[module] = from - offset;
      if (rights[2] != 'x') continue;
      const bool ours = begins_with(module, "libetherwarp");
      bool passed = false;
      // The preload library hands on what is not for EtherWARP: whose call that is, its caller says.
      for (const char* library : {"libc.so", "libstdc++", "liburing", "ld-linux", "libgcc_s", "libfmt", "libisal",
                                  "libm.so", "libetherwarp-preload", "libewarp_inject"})
        passed = passed || begins_with(module, library);
      mappings_.push_back({from, to, bases[module], module, ours, passed});
    }
    std::sort(mappings_.begin(), mappings_.end(), [](const Mapping& a, const Mapping& b) { return a.from < b.from; });
  }

 private:
  pid_t pid_;
  std::vector<Mapping> mappings_;
};

// The first word of the stack that is an address in a module which is not passed over. It may be stale: then the point
// has the name of another one, and is failed all the same.
std::string caller(Modules& modules, pid_t tid, std::uint64_t pc) {
  if (modules.at(pc) == nullptr) modules.read();
  std::ifstream in("/proc/" + std::to_string(tid) + "/syscall");
  std::string line, word, last, before;
  std::getline(in, line);
  std::istringstream words(line);
  while (words >> word) {
    before = last;
    last = word;
  }
  if (before.empty()) return "";
  const std::uint64_t sp = std::strtoull(before.c_str(), nullptr, 16);
  std::array<std::uint64_t, 256> stack{};
  const iovec local{stack.data(), sizeof stack};
  // The stack may end before.
  ssize_t got = -1;
  for (std::size_t size = sizeof stack; got <= 0 && size >= 256; size /= 2) {
    const iovec remote{reinterpret_cast<void*>(sp), size};
    got = process_vm_readv(tid, &local, 1, &remote, 1, 0);
  }
  for (std::size_t i = 0; got > 0 && i < static_cast<std::size_t>(got) / 8; ++i) {
    const Mapping* m = modules.at(stack[i]);
    if (m == nullptr || m->passed) continue;
    if (!m->ours) return "";
    char text[32];
    std::snprintf(text, sizeof text, "+0x%" PRIx64, stack[i] - m->base);
    return m->module + text;
  }
  return "";
}

// What /proc calls the file behind a descriptor of the program.
std::string file_behind(pid_t pid, std::uint64_t fd) {
  char target[64] = "";
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(static_cast<int>(fd));
  return readlink(path.c_str(), target, sizeof target - 1) > 0 ? target : "";
}

// Whether there is an error that a correct caller could meet.
bool can_fail(pid_t pid, const seccomp_data& call) {
  switch (call.nr) {
    case SYS_read:
    case SYS_write:
      return !begins_with(file_behind(pid, call.args[0]), "anon_inode:[eventfd]");  // eight octets of a number
    case SYS_fcntl:
      return call.args[1] == F_DUPFD || call.args[1] == F_DUPFD_CLOEXEC;  // not flags of an open descriptor
    case SYS_epoll_ctl:
      return call.args[1] == EPOLL_CTL_ADD;  // the others ask for nothing that could be short
    default:
      return true;
  }
}

// Pipes are not devices, and no session fills one: their reads and writes may be interrupted, no more.
bool can_give(pid_t pid, const seccomp_data& call, int error) {
  if ((call.nr != SYS_read && call.nr != SYS_write) || error == EINTR) return true;
  return !begins_with(file_behind(pid, call.args[0]), "pipe:");
}

// --- the supervisor ---

struct Order {
  int call = -1;
  std::string where;
  unsigned count = 0;  // the first is 1
  int error = 0;
};

std::optional<Order> parse(const std::string& text) {
  Order order;
  char where[256];
  if (std::sscanf(text.c_str(), "%d:%255[^:]:%u:%d", &order.call, where, &order.count, &order.error) != 4)
    return std::nullopt;
  order.where = where;
  return order;
}

class Supervisor {
 public:
  Supervisor(pid_t child, int listener, Order order)
      : child_(child), modules_(child), listener_(listener), order_(std::move(order)) {}

  void answer() {
    seccomp_notif asked{};
    if (ioctl(listener_, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) return;  // ENOENT: the thread is gone
    seccomp_notif_resp reply{};
    reply.id = asked.id;
    reply.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    std::string where;
    if (can_fail(child_, asked.data))
      where = caller(modules_, static_cast<pid_t>(asked.pid), asked.data.instruction_pointer);
    if (!where.empty() && ioctl(listener_, SECCOMP_IOCTL_NOTIF_ID_VALID, &asked.id) == 0) {
      const unsigned n = ++points_[{asked.data.nr, where}];
      if (asked.data.nr == order_.call && where == order_.where && n == order_.count &&
          can_give(child_, asked.data, order_.error)) {
        failed_ = true;
        reply.flags = 0;
        // brk() has no error: it gives back the old end.
        reply.error = asked.data.nr == SYS_brk ? 0 : -order_.error;
      }
    }
    ioctl(listener_, SECCOMP_IOCTL_NOTIF_SEND, &reply);
  }

  void report(const char* path) const {
    std::ofstream out(path);
    for (const auto& [point, n] : points_) out << point.first << ' ' << point.second << ' ' << n << '\n';
    if (failed_) out << "failed\n";
  }

 private:
  pid_t child_;
  Modules modules_;
  int listener_;
  Order order_;
  std::map<std::pair<int, std::string>, unsigned> points_;
  bool failed_ = false;
};

int supervise(pid_t child, int ended, int listener, const Order& order, const char* report) {
  Supervisor supervisor(child, listener, order);
  for (;;) {
    std::array<pollfd, 2> fds = {pollfd{listener, POLLIN, 0}, pollfd{ended, POLLIN, 0}};
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) die("poll");
    if ((fds[0].revents & POLLIN) != 0) supervisor.answer();
    if ((fds[0].revents & (POLLHUP | POLLERR)) != 0 || (fds[1].revents & POLLIN) != 0) break;
  }
  int status = 0;
  waitpid(child, &status, 0);
  supervisor.report(report);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

int main(int argc, char** argv) {
  Order order;
  const char* report = "/dev/null";
  int at = 1;
  for (; at + 1 < argc && begins_with(argv[at], "--"); at += 2) {
    if (std::string_view(argv[at]) == "--report") {
      report = argv[at + 1];
    } else if (const auto parsed = parse(argv[at + 1]); std::string_view(argv[at]) == "--fail" && parsed) {
      order = *parsed;
    } else {
      std::fprintf(stderr, "%s: what is %s %s?\n", argv[0], argv[at], argv[at + 1]);
      return kNoNotification;
    }
  }
  if (at >= argc) return kNoNotification;
  void* shared = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) die("mmap");
  auto* meeting = new (shared) Meeting;
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    meeting->listener = watch_this_thread();
    while (!meeting->taken) sched_yield();
    execvp(argv[at], argv + at);
    _exit(127);
  }
  const int ended = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  if (ended < 0) die("pidfd_open");
  pollfd gone{ended, POLLIN, 0};
  while (meeting->listener < 0)
    if (poll(&gone, 1, 1) > 0) return kNoNotification;
  const int listener = static_cast<int>(syscall(SYS_pidfd_getfd, ended, meeting->listener.load(), 0));
  if (listener < 0) die("pidfd_getfd");
  meeting->taken = true;
  return supervise(child, ended, listener, order, report);
}
