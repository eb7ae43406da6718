// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/cli/supervise.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "mpi_shim/channel/core/job_errors.h"
#include "provider/cli/commands.h"
#include "provider/cli/launch.h"

namespace ewarp::cli {
namespace {

namespace job_errors = channel::job_errors;

// The beginning of a line that may be one of the job's errors is kept back for so long, and so much of it.
constexpr int kHeldMs = 100;
constexpr std::size_t kMostHeld = 8192;
constexpr std::size_t kMostSaid = 256;  // different lines
constexpr int kHung = 1 << 8;           // as waitpid() tells of status 1
// How often is looked whether mpirun has processes still; it hangs if it has had none for so long.
constexpr std::chrono::milliseconds kLook{1000}, kChildless{10000};
constexpr int kHandedOn[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

// Where in the line an error begins, as mpirun may be asked to write more in front of it; or the beginning of one, at
// its end.
std::size_t find_error(std::string_view text) {
  if (const auto at = text.find(job_errors::kBoth); at != text.npos) return at;
  for (std::size_t n = std::min(text.size(), job_errors::kBoth.size() - 1); n > 0; --n)
    if (text.ends_with(job_errors::kBoth.substr(0, n))) return text.size() - n;
  return text.npos;
}

// A process that takes no signal: what is pending there was sent to the whole group.
class Sentinel {
 public:
  // The caller blocks the signals that it asks for.
  Sentinel() { start(); }
  ~Sentinel() { end(); }
  Sentinel(const Sentinel&) = delete;
  Sentinel& operator=(const Sentinel&) = delete;

  // Whether it got the signal too, which has come to this process.
  bool got(int number) {
    // kill() holds the kernel's list of processes until it has come to all of the group; this call waits for that.
    setpgid(0, getpgrp());
    if (!pending(number)) return false;
    end();
    start();
    return true;
  }

 private:
  void start() {
    const pid_t parent = getpid();
    child_ = fork();
    if (child_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    closefrom(0);
    for (;;) pause();
  }
  void end() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  bool pending(int number) const {
    std::ifstream status("/proc/" + std::to_string(child_) + "/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("ShdPnd:")) return (std::stoull(line.substr(7), nullptr, 16) >> (number - 1) & 1) != 0;
    return false;
  }

  pid_t child_ = -1;
};

// Whether a process has children; yes where the kernel does not say.
bool has_children(pid_t pid) {
  std::error_code failed;
  bool told = false;
  std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid) + "/task", failed);
  // Its threads may end meanwhile.
  for (; threads != std::filesystem::directory_iterator(); threads.increment(failed)) {
    std::ifstream children(threads->path() / "children");
    told |= children.good();
    if (pid_t child; children >> child) return true;
  }
  return !told;
}

// Open MPI 4.1's mpirun hangs behind the end of its processes if one of them ends in the moment in which it connects to
// the server of PMIx 4.2: the server says so, and keeps a lock.
class Hang {
 public:
  using Clock = std::chrono::steady_clock;

  // What mpirun writes to stderr.
  void read(std::string_view octets) {
    if (said_) return;
    end_ += octets;
    said_ = end_.find(kSaid) != end_.npos;
    if (end_.size() >= kSaid.size()) end_.erase(0, end_.size() - kSaid.size() + 1);
  }
  // The server has said so. Without its word mpirun may wait for processes that are no children of its own.
  bool is_likely() const { return said_; }
  // Whether it hangs.
  bool look(pid_t pid) {
    if (has_children(pid)) {
      since_.reset();
    } else if (!since_) {
      since_ = Clock::now();
    }
    return since_ && Clock::now() - *since_ >= kChildless;
  }

 private:
  static constexpr std::string_view kSaid = "PMIX ERROR: UNREACHABLE";
  std::string end_;
  bool said_ = false;
  std::optional<Clock::time_point> since_;
};

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;  // its reader is gone: the job goes on
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

class Supervisor {
 public:
  Supervisor();
  ~Supervisor() { close(signal_fd_); }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // In the child.
  [[noreturn]] void become(const std::string& path, const std::vector<std::string>& arguments, int errors,
                           pid_t parent);
  // Until the child's end; its status.
  int watch(pid_t child, int errors);

 private:
  void take_signals();
  bool read_errors(int errors);
  void look();

  sigset_t before_{};  // what was blocked, and what became of SIGPIPE
  struct sigaction pipe_before_ {};
  Reaping reaping_;
  int signal_fd_ = -1;
  std::optional<Sentinel> sentinel_;
  Repetitions repetitions_;
  Hang hang_;
  std::chrono::steady_clock::time_point looked_{};
  pid_t child_ = -1;
  int status_ = 0;
  bool hung_ = false;
  bool ended_ = false;
};

Supervisor::Supervisor() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int number : kHandedOn) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, &before_);
  reaping_.begin();
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &pipe_before_);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  sentinel_.emplace();
}

void Supervisor::become(const std::string& path, const std::vector<std::string>& arguments, int errors, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  dup2(errors, STDERR_FILENO);
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  reaping_.end();
  sigprocmask(SIG_SETMASK, &before_, nullptr);
  if (getppid() != parent) _exit(kCannotRun);
  _exit(replace_by(path, arguments));
}

void Supervisor::take_signals() {
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof info) == sizeof info) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) {
      ended_ = ended_ || waitpid(child_, &status_, WNOHANG) == child_;
    } else if (!sentinel_->got(number) && !ended_) {
      kill(child_, number);
    }
  }
}

// False: there is no more.
bool Supervisor::read_errors(int errors) {
  std::array<char, 16384> octets;
  const ssize_t n = read(errors, octets.data(), octets.size());
  if (n <= 0) return n < 0 && errno == EINTR;
  const std::string_view text(octets.data(), static_cast<std::size_t>(n));
  hang_.read(text);
  write_all(STDERR_FILENO, repetitions_.pass(text));
  return true;
}

void Supervisor::look() {
  const auto now = std::chrono::steady_clock::now();
  if (!hang_.is_likely() || hung_ || ended_ || now - looked_ < kLook) return;
  looked_ = now;
  if (!hang_.look(child_)) return;
  hung_ = true;
  write_all(STDERR_FILENO, repetitions_.rest());
  write_all(STDERR_FILENO, "etherwarp: warn: mpirun has not ended, although all its processes have; it is ended now\n");
  kill(child_, SIGKILL);
}

int Supervisor::watch(pid_t child, int errors) {
  child_ = child;
  bool open = true;
  while (!ended_) {
    pollfd both[] = {{.fd = signal_fd_, .events = POLLIN, .revents = 0},
                     {.fd = open ? errors : -1, .events = POLLIN, .revents = 0}};
    const int idle = hang_.is_likely() ? static_cast<int>(kLook.count()) : -1;
    const int n = poll(both, 2, repetitions_.keeps_some() ? kHeldMs : idle);
    if (n == 0) write_all(STDERR_FILENO, repetitions_.rest());
    look();
    if (n > 0 && both[1].revents != 0) open = read_errors(errors);
    if (n > 0 && both[0].revents != 0) take_signals();
  }
  // What is there by now: others may still have the pipe, a remote shell for instance.
  fcntl(errors, F_SETFL, O_NONBLOCK);
  while (open && read_errors(errors)) {
  }
  write_all(STDERR_FILENO, repetitions_.rest());
  return hung_ ? kHung : status_;
}

// As the child did: whoever waits for us is to see the same.
int end_as(int status) {
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  const int number = WTERMSIG(status);
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &none);  // the child has dumped its own
  signal(number, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  sigprocmask(SIG_UNBLOCK, &one, nullptr);
  raise(number);
  return 128 + number;
}

}  // namespace

bool Repetitions::is_new(std::string_view line) {
  const std::size_t at = find_error(line);
  if (at == line.npos) return true;
  std::string_view what = line.substr(at);
  if (what.starts_with(job_errors::kUnreachable))
    what = job_errors::kUnreachable;
  else if (!what.starts_with(job_errors::kHost))
    return true;
  return said_.contains(what) ? false : said_.size() >= kMostSaid || said_.emplace(what).second;
}

std::string Repetitions::pass(std::string_view octets) {
  std::string out;
  kept_ += octets;
  std::size_t from = 0;
  for (std::size_t end; (end = kept_.find('\n', from)) != kept_.npos; from = end + 1) {
    const std::string_view line = std::string_view(kept_).substr(from, end + 1 - from);
    if (inside_ || is_new(line)) out += line;
    inside_ = false;
  }
  kept_.erase(0, from);
  const bool may_be_one = !inside_ && kept_.size() <= kMostHeld && find_error(kept_) != kept_.npos;
  return may_be_one ? out : out + rest();
}

std::string Repetitions::rest() {
  inside_ = inside_ || !kept_.empty();
  return std::exchange(kept_, {});
}

int supervise(const std::string& path, const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail(kCannotRun, "cannot run '{}': {}", path, std::strerror(errno));
  Supervisor supervisor;
  const pid_t parent = getpid(), child = fork();
  if (child < 0) return fail(kCannotRun, "cannot run '{}': {}", path, std::strerror(errno));
  if (child == 0) supervisor.become(path, arguments, ends[1], parent);
  close(ends[1]);
  return end_as(supervisor.watch(child, ends[0]));
}

}  // namespace ewarp::cli
