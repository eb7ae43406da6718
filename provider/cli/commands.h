// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The commands of the tool. Each returns the exit status; what goes wrong is one line on stderr.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "llp/netif.h"
#include "provider/base/options.h"

namespace ewarp::cli {

// Exit statuses beyond 0 and 1, as shells have them.
inline constexpr int kUsage = 2;
inline constexpr int kCannotRun = 126;
inline constexpr int kNotFound = 127;

// What a failure begins with: nothing, or on which host it is.
inline std::string& failure_prefix() {
  static std::string prefix;
  return prefix;
}
// For programs that are started on many hosts at once.
void name_host_in_failures();

template <class... A>
int fail(int status, fmt::format_string<A...> f, A&&... a) {
  fmt::print(stderr, "etherwarp: {}{}\n", failure_prefix(), fmt::format(f, std::forward<A>(a)...));
  return status;
}

using Settings = std::vector<std::pair<std::string, std::string>>;  // option name, value

// Replaces this process by the program, with EtherWARP beneath it. mpi: a rank of an MPI job. Returns only on failure.
int run(const Settings& settings, bool mpi, const std::vector<std::string>& program);
// Runs Open MPI's mpirun with these words, its ranks over EtherWARP. Its exit status.
int mpirun(const std::vector<std::string>& words);
// Starts so many processes of an ACP program on this host, and waits for them. The first bad status of one, else 0.
int acprun(unsigned procs, const std::vector<std::string>& program);
// Open MPI's mpirun in PATH, empty if there is none; other: an mpirun that is not Open MPI's.
struct OpenMpi {
  std::string path, version, other;
};
OpenMpi find_open_mpi();
// Lines for a shell to evaluate. mpi: for the ranks of an MPI job.
int env(const Settings& settings, bool mpi);
int devices(bool json);
int doctor();
struct StatArguments {
  bool json = false, verbose = false, ended = false;
  double watch_s = 0;  // 0: once
  unsigned count = 0;  // how often with watch; 0: for ever
  int pid = 0;         // 0: every process
};
int stat(const StatArguments& arguments);
int list_options();

// The interfaces that become devices under these options; problems: one line per name that cannot.
std::vector<llp::Interface> usable_interfaces(const Options& options, std::vector<std::string>* problems);

}  // namespace ewarp::cli
