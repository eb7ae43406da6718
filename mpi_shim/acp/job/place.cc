// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/job/place.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "mpi_shim/acp/core/global_address.h"
#include "mpi_shim/acp/core/text.h"
#include "mpi_shim/acp/job/protocol.h"

namespace ewarp::acp {
namespace {

// Open MPI's, of 4 and 5.
constexpr char kOpenMpiRank[] = "OMPI_COMM_WORLD_RANK";
constexpr char kOpenMpiProcs[] = "OMPI_COMM_WORLD_SIZE";
constexpr char kOpenMpiLocalProcs[] = "OMPI_COMM_WORLD_LOCAL_SIZE";
constexpr char kPmixJob[] = "PMIX_NAMESPACE";
constexpr char kPmixServer[] = "PMIX_SERVER_URI2";  // its port tells two mpiruns apart whose jobs have one number

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

bool read_ranks(std::string_view rank, std::string_view procs, JobPlace* out) {
  return read_number(rank, &out->rank) && read_number(procs, &out->procs) && out->rank < out->procs &&
         out->procs <= GlobalAddress::kMostProcs;
}

std::string from_open_mpi(JobPlace* out) {
  if (!read_ranks(variable(kOpenMpiRank), variable(kOpenMpiProcs), out))
    return std::string(kOpenMpiRank) + " and " + kOpenMpiProcs + " do not name a process of a job";
  if (out->procs == 1) return {};
  if (variable(kOpenMpiLocalProcs) != variable(kOpenMpiProcs)) return "the processes of a job have to be on one host";
  if (variable(kPmixJob).empty()) return std::string(kPmixJob) + " is missing: start the job by mpirun";
  out->meeting = "etherwarp-acp-" + std::to_string(geteuid()) + "-" + std::string(variable(kPmixJob)) + "-" +
                 std::string(variable(kPmixServer));
  return {};
}

}  // namespace

// FNV-1a. Without its highest bit: verbs keeps such keys for privileged programs.
std::uint32_t JobPlace::qkey() const {
  std::uint32_t out = 0x811c9dc5;
  for (const char digit : secret) out = (out ^ static_cast<unsigned char>(digit)) * 0x01000193;
  return out & 0x7fff'ffff;
}

std::string JobPlace::from_environment(JobPlace* out) {
  const auto rank = variable(kRankVariable), procs = variable(kProcsVariable);
  if (rank.empty() && procs.empty()) return variable(kOpenMpiRank).empty() ? "" : from_open_mpi(out);
  if (!read_ranks(rank, procs, out))
    return std::string(kRankVariable) + " and " + kProcsVariable + " do not name a process of a job";
  out->root = variable(kRootVariable);
  out->secret = variable(kSecretVariable);
  if (out->secret.size() != kSecretOctets)
    return std::string(kSecretVariable) + " has to have " + std::to_string(kSecretOctets) + " digits";
  return out->root.empty() ? std::string(kRootVariable) + " does not say where the coordinator is" : "";
}

}  // namespace ewarp::acp
