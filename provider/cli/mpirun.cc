// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// `etherwarp mpirun`: Open MPI's launcher, with everything that makes its ranks talk over EtherWARP.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "provider/cli/commands.h"
#include "provider/cli/job.h"
#include "provider/cli/launch.h"
#include "provider/cli/libraries.h"
#include "provider/cli/supervise.h"

extern char** environ;

namespace ewarp::cli {
namespace {

// Variables of ours that the ranks must have as mpirun has them.
constexpr std::string_view kForwarded[] = {"ETHERWARP_", "EWARP_CHANNEL_", "EWARP_LAUNCH"};

// What the program prints when asked for its version; empty if it cannot be run.
std::string version_of(const std::string& path) {
  std::string out;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return out;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    execl(path.c_str(), path.c_str(), "--version", static_cast<char*>(nullptr));
    _exit(kCannotRun);
  }
  close(ends[1]);
  std::array<char, 512> octets;
  for (ssize_t n; child > 0 && (n = read(ends[0], octets.data(), octets.size())) > 0;)
    out.append(octets.data(), static_cast<std::size_t>(n));
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return out;
}

// What a rank begins as: a shell that becomes `etherwarp run --mpi` of its host, the one in the place of ours or the
// one in PATH. What it evaluates has no place in a parameter, of which Open MPI and the remote shell each take quotes
// off.
constexpr char kLaunchVariable[] = "EWARP_LAUNCH";

std::string launch_script(const std::string& tool) {
  std::string quoted;
  for (const char c : tool) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return fmt::format(
      ":; for ewarp in '{0}' \"$(command -v etherwarp)\"; do [ -x \"$ewarp\" ] && unset {1} && "
      "exec \"$ewarp\" run --mpi -- \"$@\"; done; "
      "echo \"etherwarp: error: host $(uname -n): EtherWARP is missing: there is neither \"'{0}'\" nor etherwarp in "
      "PATH; "
      "install it there\" >&2; exit {2}",
      quoted, kLaunchVariable, kCannotRun);
}

constexpr const char* kForkAgentVariables[] = {
    "OMPI_MCA_orte_fork_agent",       // Open MPI 4.1
    "PRTE_MCA_odls_base_exec_agent",  // Open MPI 5, whose launcher is PRRTE
};

// Evaluates the variable. Words are split at blanks alone, hence the tabs. The local daemon takes this as it is, so the
// first eval takes the backslashes off; on other hosts the remote shell has done so, and the first eval evaluates the
// script behind a second eval, whose business ends with the script's first word.
constexpr char kForkAgent[] = "/bin/sh -c eval\teval\t\\\"\\$EWARP_LAUNCH\\\" etherwarp";

// The list without our library, which may be elsewhere on other hosts.
std::string without(const std::string& list, const std::string& library) {
  std::string out;
  for (std::size_t at = 0; at < list.size();) {
    const auto end = std::min(list.find_first_of(": ", at), list.size());
    const std::string one = list.substr(at, end - at);
    if (!one.empty() && one != library) out += (out.empty() ? "" : ":") + one;
    at = end + 1;
  }
  return out;
}

}  // namespace

OpenMpi find_open_mpi() {
  OpenMpi out;
  // Where several MPI libraries are installed, `mpirun` may be another's.
  for (const char* name : {"mpirun", "mpirun.openmpi"}) {
    const std::string path = resolve(name);
    if (path.empty()) continue;
    const std::string version = version_of(path);
    if (version.find("Open MPI") != version.npos) return {path, version.substr(0, version.find('\n')), ""};
    if (out.other.empty()) out.other = path;
  }
  return out;
}

int mpirun(const std::vector<std::string>& words) {
  const Libraries libraries = find_libraries();
  if (const int status = check_mpi_libraries(libraries); status != 0) return status;
  const OpenMpi found = find_open_mpi();
  if (found.path.empty() && !found.other.empty())
    return fail(kNotFound, "'{}' is not Open MPI's, and there is no mpirun.openmpi; `apt-get install openmpi-bin`",
                found.other);
  if (found.path.empty()) return fail(kNotFound, "no mpirun in PATH; install Open MPI: `apt-get install openmpi-bin`");
  if (const int status = check_interfaces({}); status != 0) return status;

  set_variables(job_variables());
  setenv(kSecretVariable, job_secret().c_str(), 0);
  for (const char* variable : kForkAgentVariables) setenv(variable, kForkAgent, 1);
  setenv(kLaunchVariable, launch_script(own_path()).c_str(), 1);
  std::vector<std::string> arguments = {found.path};
  const auto forward = [&](const std::string& assignment) {
    arguments.push_back("-x");
    arguments.push_back(assignment);
  };
  if (const auto others = without(environment(kPreloadVariable), libraries.preload); !others.empty())
    forward(fmt::format("{}={}", kPreloadVariable, others));
  if (!environment(kFabricPathVariable).empty()) forward(kFabricPathVariable);
  // By name, so that no list of processes shows the secret.
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    for (const auto prefix : kForwarded)
      if (text.starts_with(prefix)) forward(std::string(text.substr(0, text.find('='))));
  }
  arguments.insert(arguments.end(), words.begin(), words.end());
  return supervise(found.path, arguments);
}

}  // namespace ewarp::cli
