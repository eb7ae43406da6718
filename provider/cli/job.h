// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The environment of an MPI job's ranks over EtherWARP: what all of them have, and what belongs to a host.
#pragma once

#include <string>
#include <vector>

#include "provider/cli/libraries.h"

namespace ewarp::cli {

struct Variable {
  std::string name, value;
  bool wins;  // over a value that is set already
};

inline constexpr char kSecretVariable[] = "EWARP_CHANNEL_JOB";

// Of Open MPI and the message channel: the same for all ranks of a job.
std::vector<Variable> job_variables();
// 128 random bits, which every rank gets and nobody else; empty if there are none to be had.
std::string job_secret();
// Of the loader and libfabric: where EtherWARP is on this host.
std::vector<Variable> host_variables(const Libraries& libraries);

// Into this process's environment. launched: what the launcher has set wins over everything.
void set_variables(const std::vector<Variable>& variables, bool launched = false);

// 0, or the exit status after having said what is missing: the libraries, and the libfabric provider.
int check_mpi_libraries(const Libraries& libraries);

}  // namespace ewarp::cli
