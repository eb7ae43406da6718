// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// acp.h: processes.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "mpi_shim/acp/api.h"

namespace ewarp::acp {
namespace {

// acp_init() and acp_finalize() are called by one thread, when no other uses the library.
std::unique_ptr<Process> the_process;

int join(const JobPlace& place) {
  std::string why;
  the_process = Process::join(options_from_environment(), place, &why);
  if (the_process != nullptr) return 0;
  std::fprintf(stderr, "acp: %s\n", why.c_str());
  errno = ENOTCONN;
  return -1;
}

// Everybody is here before anybody gives memory back to which another might write.
int finish() {
  const int error = with_process(ENOTCONN, [](Process& p) EWARP_REQUIRES(p.mutex) { return p.leave(); });
  if (the_process == nullptr) return -1;
  the_process.reset();
  if (error != 0) errno = error;
  return error == 0 ? 0 : -1;
}

}  // namespace

Process* process() {
  if (the_process == nullptr) errno = ENOTCONN;
  return the_process.get();
}

}  // namespace ewarp::acp

using namespace ewarp::acp;

extern "C" {

EWARP_ACP_EXPORT int acp_init(int*, char***) {
  if (the_process != nullptr) return errno = EINVAL, -1;
  JobPlace place;
  if (const auto why = JobPlace::from_environment(&place); !why.empty()) {
    std::fprintf(stderr, "acp: %s\n", why.c_str());
    return errno = EINVAL, -1;
  }
  try {
    return join(place);
  } catch (const std::bad_alloc&) {
    return errno = ENOMEM, -1;
  }
}

EWARP_ACP_EXPORT int acp_finalize(void) {
  return finish();
}

EWARP_ACP_EXPORT void acp_abort(const char* text) {
  const int error = errno;
  const int rank = the_process != nullptr ? static_cast<int>(the_process->rank()) : -1;
  std::fprintf(stderr, "acp: rank %d aborts: %s: %s\n", rank, text != nullptr ? text : "", std::strerror(error));
  if (the_process != nullptr) the_process->abort_job();
  std::_Exit(1);
}

EWARP_ACP_EXPORT int acp_sync(void) {
  return with_process(-1, [](Process& p) EWARP_REQUIRES(p.mutex) {
    const int error = p.meet();
    if (error != 0) errno = error;
    return error == 0 ? 0 : -1;
  });
}

EWARP_ACP_EXPORT int acp_rank(void) {
  return process() != nullptr ? static_cast<int>(the_process->rank()) : -1;
}

EWARP_ACP_EXPORT int acp_procs(void) {
  return process() != nullptr ? static_cast<int>(the_process->procs()) : -1;
}
}
