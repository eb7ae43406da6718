// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/cli/job.h"

#include <sys/random.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include "provider/cli/commands.h"
#include "provider/cli/launch.h"

namespace ewarp::cli {
namespace {

// Open MPI's parameters as environment variables: mpirun hands them on to every host, and its own --mca beats them.
// That is also why the configuration of Debian, which excludes some of these, does not count.
constexpr std::pair<const char*, const char*> kParameters[] = {
    // cm, which beats ob1 where mtl ofi is. Without ob1, Open MPI 5 before 5.0.9 makes no BTL ready, and osc rdma then
    // takes no window.
    {"pml", "^ucx"},
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
    // Pieces of memory in a dynamic window. 64 is Open MPI's default, and the 65th an error.
    {"osc_rdma_max_attach", "1024"},
    // An accumulate goes in pieces of an eighth of it: 64 KiB, not 4. Larger ones would be mapped and unmapped anew.
    {"osc_rdma_buffer_size", "524288"},
};

// Of the message channel, unless the user has set them.
constexpr std::pair<const char*, const char*> kChannel[] = {
    // The control messages of other protocols cost more than EAGER's copies up to here.
    {"EAGER_THRESHOLD", "131072"},
    // Windows of 32 to 128 KiB lose a quarter of their bandwidth by smaller pieces.
    {"EAGER_PIECE", "32768"},
    // 63 receives: one busy partner has all of receive_depth. With half of them small messages have half of the rate.
    {"RECEIVE_MEMORY", "2097152"},
    // A sender that comes first goes on at once up to here, for a copy. Windows of longer messages lose by the copies.
    {"HYBRID_THRESHOLD", "196608"},
    {"ANNOUNCE_THRESHOLD", "32768"},
    // Open MPI's receives ignore its mark of synchronous sends, a bit of the tag.
    {"IGNORED_BITS", "0x100000000"},
    // MPI's own words do not say why, and a rank may wait without having asked.
    {"END_IF_UNREACHABLE", "yes"},
};

}  // namespace

std::vector<Variable> job_variables() {
  std::vector<Variable> out;
  for (const auto& [name, value] : kParameters) out.push_back({fmt::format("OMPI_MCA_{}", name), value, true});
  for (const auto& [name, value] : kDefaults) out.push_back({fmt::format("OMPI_MCA_{}", name), value, false});
  for (const auto& [name, value] : kChannel) out.push_back({fmt::format("EWARP_CHANNEL_{}", name), value, false});
  return out;
}

std::string job_secret() {
  std::array<std::uint64_t, 2> bits;
  if (getrandom(bits.data(), sizeof bits, 0) != sizeof bits) return {};
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

std::vector<Variable> host_variables(const Libraries& libraries) {
  const std::string directory = std::filesystem::path(libraries.fabric).parent_path().string();
  const std::string more = environment(kFabricPathVariable);
  const bool there = more == directory || more.starts_with(directory + ":");
  return {
      {kPreloadVariable, with_preload(environment(kPreloadVariable), libraries.preload), true},
      {kFabricPathVariable, there ? more : directory + (more.empty() ? "" : ":" + more), true},
      {"FI_PROVIDER", "etherwarp", true},  // the others are not even asked
  };
}

void set_variables(const std::vector<Variable>& variables, bool launched) {
  for (const auto& v : variables) setenv(v.name.c_str(), v.value.c_str(), v.wins && !launched ? 1 : 0);
}

int check_mpi_libraries(const Libraries& libraries) {
  if (const int status = check_libraries(libraries); status != 0) return status;
  if (libraries.fabric.empty())
    return fail(kCannotRun, "{} not found in {}; build EtherWARP where libfabric-dev is installed", kFabricProvider,
                fmt::join(libraries.searched, ", "));
  if (const auto why = why_not_loadable(libraries.fabric); !why.empty())
    return fail(kCannotRun, "the libfabric provider cannot be loaded: {}; `etherwarp doctor` says more", why);
  return 0;
}

}  // namespace ewarp::cli
