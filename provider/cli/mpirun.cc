// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// `etherwarp mpirun`: Open MPI's launcher, with everything that makes its ranks talk over EtherWARP.
#include <fcntl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "provider/cli/commands.h"
#include "provider/cli/launch.h"
#include "provider/cli/libraries.h"

extern char** environ;

namespace ewarp::cli {
namespace {

// Open MPI's parameters as environment variables: mpirun hands them on to every host, and its own --mca beats them.
// That is also why the configuration of Debian, which excludes some of these, does not count.
constexpr std::pair<const char*, const char*> kParameters[] = {
    {"pml", "cm"},
    {"mtl", "ofi"},
    {"opal_common_ofi_provider_include", "etherwarp"},  // of mtl ofi and btl ofi
    {"btl", "ofi,self"},  // ofi for osc rdma; pml cm needs none, and the others would look for devices
    // osc pt2pt sends other octets than it should where a datatype's lower bound is not zero. sm is for windows that
    // MPI allocates on one host, in which Open MPI 4.1.4's rdma crashes at MPI_Compare_and_swap: so it comes first.
    {"osc", "rdma,sm"},
    {"osc_rdma_priority", "99"},  // sm has 100
    // The network's atomics for the elements of an MPI_Get_accumulate: Open MPI 4.1.4 returns other octets then.
    {"osc_rdma_network_max_amo", "0"},
};

// Unless the user has set them. mpirun asks its daemons whether they are there: 6 s after the last octet, then every 2
// s, four times. It has to find that a host is gone before a rank does (option unacknowledged_s): a rank that aborts
// makes it send an order to that host, and it waits for TCP, about 15 minutes.
constexpr std::pair<const char*, const char*> kDefaults[] = {
    {"oob_tcp_keepalive_time", "6"},
    {"oob_tcp_keepalive_intvl", "2"},
    {"oob_tcp_keepalive_probes", "4"},
};

// Variables of ours that the ranks must have as mpirun has them.
constexpr std::string_view kForwarded[] = {"ETHERWARP_", "EWARP_CHANNEL_"};

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

// 128 random bits, which every rank gets and nobody else; empty if there are none to be had.
std::string job_secret() {
  std::array<std::uint64_t, 2> bits;
  if (getrandom(bits.data(), sizeof bits, 0) != sizeof bits) return {};
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
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
  if (const int status = check_libraries(libraries); status != 0) return status;
  if (libraries.fabric.empty())
    return fail(kCannotRun, "{} not found in {}; build EtherWARP where libfabric-dev is installed", kFabricProvider,
                fmt::join(libraries.searched, ", "));
  if (const auto why = why_not_loadable(libraries.fabric); !why.empty())
    return fail(kCannotRun, "the libfabric provider cannot be loaded: {}; `etherwarp doctor` says more", why);
  const OpenMpi found = find_open_mpi();
  if (found.path.empty() && !found.other.empty())
    return fail(kNotFound, "'{}' is not Open MPI's, and there is no mpirun.openmpi; `apt-get install openmpi-bin`",
                found.other);
  if (found.path.empty()) return fail(kNotFound, "no mpirun in PATH; install Open MPI: `apt-get install openmpi-bin`");
  if (const int status = check_interfaces({}); status != 0) return status;

  // The control messages of other protocols cost more than EAGER's copies up to here.
  setenv("EWARP_CHANNEL_EAGER_THRESHOLD", "131072", 0);
  // A sender that comes first goes on at once up to here, for a copy. Windows of longer messages lose by the copies.
  setenv("EWARP_CHANNEL_HYBRID_THRESHOLD", "196608", 0);
  setenv("EWARP_CHANNEL_ANNOUNCE_THRESHOLD", "32768", 0);
  // A host has many ranks.
  setenv("EWARP_CHANNEL_RECEIVE_MEMORY", "524288", 0);
  // Its receives ignore its mark of synchronous sends, a bit of the tag.
  setenv("EWARP_CHANNEL_IGNORED_BITS", "0x100000000", 0);
  // By name below, so that no list of processes shows it.
  setenv("EWARP_CHANNEL_JOB", job_secret().c_str(), 0);
  for (const auto& [name, value] : kParameters) setenv(fmt::format("OMPI_MCA_{}", name).c_str(), value, 1);
  for (const auto& [name, value] : kDefaults) setenv(fmt::format("OMPI_MCA_{}", name).c_str(), value, 0);
  std::vector<std::string> arguments = {found.path};
  const auto forward = [&](const std::string& assignment) {
    arguments.push_back("-x");
    arguments.push_back(assignment);
  };
  forward(fmt::format("{}={}", kPreloadVariable, with_preload(environment(kPreloadVariable), libraries.preload)));
  const std::string directory = std::filesystem::path(libraries.fabric).parent_path().string();
  const std::string more = environment("FI_PROVIDER_PATH");
  forward("FI_PROVIDER_PATH=" + directory + (more.empty() ? "" : ":" + more));
  forward("FI_PROVIDER=etherwarp");  // the others are not even asked
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    for (const auto prefix : kForwarded)
      if (text.starts_with(prefix)) forward(std::string(text.substr(0, text.find('='))));
  }
  arguments.insert(arguments.end(), words.begin(), words.end());
  return replace_by(found.path, arguments);
}

}  // namespace ewarp::cli
