// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// `etherwarp acprun -n N PROGRAM`: starts the processes of an ACP job on this host, over EtherWARP, tells them of each
// other, and waits for them.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <vector>

#include "mpi_shim/acp/job/coordinator.h"
#include "mpi_shim/acp/job/host.h"
#include "provider/cli/commands.h"
#include "provider/cli/launch.h"
#include "provider/cli/libraries.h"

namespace ewarp::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kKilled = 128;                  // + the signal, as shells say it
constexpr std::chrono::seconds kPatience{2};  // from SIGTERM to SIGKILL
constexpr int kAwakeMs = 1000;
constexpr rlim_t kOtherDescriptors = acp::Coordinator::kMostStrangers + 32;  // beside one for each process

// Those of this process: the job's, and what the job's have left behind (PR_SET_CHILD_SUBREAPER). Empty also where the
// kernel does not tell.
std::vector<pid_t> children() {
  std::ifstream list("/proc/thread-self/children");
  return {std::istream_iterator<pid_t>(list), {}};
}

class Job {
 public:
  Job(std::uint32_t procs, std::string key) : coordinator_(procs, key), secret_(std::move(key)), pids_(procs, 0) {}

  int run(const std::string& path, const std::vector<std::string>& program) {
    sigset_t watched;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    // One that is ignored would be read all the same: nohup wants none of it.
    for (const int s : {SIGINT, SIGTERM, SIGHUP})
      if (!is_ignored(s)) sigaddset(&watched, s);
    reaping_.begin();
    sigprocmask(SIG_BLOCK, &watched, &before_);
    signals_ = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    // What a process of the job leaves behind becomes this one's child, and ends with the job if that is stopped.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!make_room_for_connections()) return kCannotRun;
    const int error = signals_ < 0 ? errno : coordinator_.listen();
    if (error != 0) return fail(kCannotRun, "the job cannot be coordinated: {}", std::strerror(error));
    for (std::uint32_t rank = 0; rank < pids_.size(); ++rank)
      if (!start(rank, path, program)) {
        stop_all();
        wait_for_all();
        return kCannotRun;
      }
    wait_for_all();
    return status_;
  }

 private:
  bool make_room_for_connections() {
    if (getrlimit(RLIMIT_NOFILE, &descriptors_) != 0) return true;
    rlimit wanted = descriptors_;
    wanted.rlim_cur = std::max(wanted.rlim_cur, std::min(wanted.rlim_max, pids_.size() + kOtherDescriptors));
    if (wanted.rlim_cur >= pids_.size() + kOtherDescriptors) return setrlimit(RLIMIT_NOFILE, &wanted), true;
    fail(kCannotRun, "{} processes need {} descriptors here, and {} are allowed; see `ulimit -Hn`", pids_.size(),
         pids_.size() + kOtherDescriptors, descriptors_.rlim_max);
    return false;
  }

  // In the child: the program, or the end. The first process alone reads what this one could.
  void become(std::uint32_t rank, const std::string& path, const std::vector<std::string>& program) {
    sigprocmask(SIG_SETMASK, &before_, nullptr);
    reaping_.end();
    setrlimit(RLIMIT_NOFILE, &descriptors_);
    if (const int nothing = rank == 0 ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC); nothing >= 0)
      dup2(nothing, STDIN_FILENO);
    setenv(acp::kRankVariable, std::to_string(rank).c_str(), 1);
    setenv(acp::kProcsVariable, std::to_string(pids_.size()).c_str(), 1);
    setenv(acp::kRootVariable, fmt::format("127.0.0.1:{}", coordinator_.port()).c_str(), 1);
    setenv(acp::kSecretVariable, secret_.c_str(), 1);
    _exit(replace_by(path, program));
  }

  bool start(std::uint32_t rank, const std::string& path, const std::vector<std::string>& program) {
    const pid_t launcher = getpid(), child = fork();
    if (child < 0) return fail(kCannotRun, "process {} cannot be started: {}", rank, std::strerror(errno)), false;
    if (child == 0) {
      // No process outlives its launcher.
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != launcher) _exit(kCannotRun);
      become(rank, path, program);
    }
    pids_[rank] = child;
    ++running_;
    return true;
  }

  void wait_for_all() {
    while (running_ != 0 || (stopping_ && !childless_)) {
      std::vector<pollfd> own = {{signals_, POLLIN, 0}};
      coordinator_.step(&own, kAwakeMs);
      take_signals();
      collect();
      if (coordinator_.aborted()) {
        note(1);
        stop_all();
      }
      if (stopping_) end_all(Clock::now() > *stopping_ + kPatience ? SIGKILL : SIGTERM);
    }
  }

  void take_signals() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof info) == sizeof info)
      if (info.ssi_signo != SIGCHLD) {
        note(kKilled + static_cast<int>(info.ssi_signo));
        stop_all();
      }
  }

  // What a process said before it ended was read first: ended() then finds out whether it had left.
  void collect() {
    int how;
    pid_t child;
    while ((child = waitpid(-1, &how, WNOHANG)) > 0)
      for (std::uint32_t rank = 0; rank < pids_.size(); ++rank)
        if (pids_[rank] == child) ended(rank, how);
    childless_ = child < 0;
  }

  void ended(std::uint32_t rank, int how) {
    pids_[rank] = 0;
    --running_;
    std::vector<pollfd> none;
    coordinator_.step(&none, 0);
    coordinator_.ended(rank);
    if (WIFSIGNALED(how) && !stopping_)
      fail(1, "process {} was ended by signal {} ({})", rank, WTERMSIG(how), strsignal(WTERMSIG(how)));
    note(WIFSIGNALED(how) ? kKilled + WTERMSIG(how) : WEXITSTATUS(how));
  }

  // The first that is not good is the job's.
  void note(int status) {
    if (status_ == 0) status_ = status;
  }

  void stop_all() {
    if (!stopping_) stopping_ = Clock::now();
  }
  // Each of them gets SIGTERM once.
  void end_all(int signal) {
    auto all = children();
    if (all.empty()) all = pids_;
    for (const pid_t pid : all)
      if (pid > 0 && (signal != SIGTERM || told_.insert(pid).second)) kill(pid, signal);
  }

  acp::Coordinator coordinator_;
  std::string secret_;
  std::vector<pid_t> pids_;  // by rank; 0: ended
  std::size_t running_ = 0;
  bool childless_ = true;
  std::set<pid_t> told_;  // to end
  rlimit descriptors_{};  // of the programs, and of this one before it changed it
  int status_ = 0;
  int signals_ = -1;
  sigset_t before_{};
  Reaping reaping_;
  std::optional<Clock::time_point> stopping_;
};

}  // namespace

int acprun(unsigned procs, const std::vector<std::string>& program) {
  std::string path;
  if (const int status = find_program(program.front(), &path); status != 0) return status;
  const Libraries libraries = find_libraries();
  if (const int status = check_libraries(libraries); status != 0) return status;
  if (const int status = check_interfaces({}); status != 0) return status;
  setenv(kPreloadVariable, with_preload(environment(kPreloadVariable), libraries.preload).c_str(), 1);
  const std::string key = acp::new_secret();
  if (key.empty()) return fail(kCannotRun, "no random numbers to be had: {}", std::strerror(errno));
  return Job(procs, key).run(path, program);
}

}  // namespace ewarp::cli
