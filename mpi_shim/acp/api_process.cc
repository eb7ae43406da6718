// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// acp.h: processes.
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "mpi_shim/acp/api.h"
#include "mpi_shim/acp/job/host.h"

namespace ewarp::acp {
namespace {

// acp_init() and acp_finalize() are called by one thread, when no other uses the library. A program that ends without
// acp_finalize() may have other threads in a call, and a forked child has nothing of this: both leave it as it is.
struct Held {
  ~Held() {
    if (process != nullptr) process->rest();
    leave_as_it_is();
  }
  Process* leave_as_it_is() {
    (void)host.release();
    return process.release();
  }
  std::unique_ptr<JobHost> host;  // of rank 0 of a job that Open MPI has started
  std::unique_ptr<Process> process;
} held;
auto& the_process = held.process;
bool joined = false;  // its job, or its parent has

void forget_in_child() {
  if (Process* of_parent = held.leave_as_it_is()) of_parent->forget_in_child();
}

bool watch_forks() {
  static const bool watched = pthread_atfork(nullptr, nullptr, forget_in_child) == 0;
  return watched;
}

// Where a launcher has not said where the coordinator is. Empty, or why it cannot be found out.
std::string find_coordinator(JobPlace* place) {
  if (place->meeting.empty()) return {};
  if (place->rank != 0) return ask_host(place);
  held.host = std::make_unique<JobHost>();
  return held.host->start(place);
}

int join(JobPlace place) {
  std::string why = find_coordinator(&place);
  if (why.empty()) the_process = Process::join(options_from_environment(), place, &why);
  if (the_process != nullptr) return joined = true, 0;
  held.host.reset();
  std::fprintf(stderr, "acp: %s\n", why.c_str());
  errno = ENOTCONN;
  return -1;
}

// Everybody is here before anybody gives memory back to which another might write.
int finish() {
  const int error = with_process(ENOTCONN, [](Process& p) EWARP_REQUIRES(p.mutex) { return p.leave(); });
  if (the_process == nullptr) return -1;
  the_process.reset();
  held.host.reset();
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
  if (joined) return errno = ENOTCONN, -1;
  JobPlace place;
  if (const auto why = JobPlace::from_environment(&place); !why.empty()) {
    std::fprintf(stderr, "acp: %s\n", why.c_str());
    return errno = EINVAL, -1;
  }
  if (!watch_forks()) return errno = ENOMEM, -1;
  try {
    return join(place);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  } catch (const std::system_error& e) {  // no thread
    errno = e.code().value();
  }
  const int error = errno;
  held.host.reset();
  return errno = error, -1;
}

EWARP_ACP_EXPORT int acp_finalize(void) {
  return finish();
}

EWARP_ACP_EXPORT void acp_abort(const char* text) {
  const int error = errno;
  const int rank = the_process != nullptr ? static_cast<int>(the_process->rank()) : -1;
  std::fprintf(stderr, "acp: rank %d aborts: %s: %s\n", rank, text != nullptr ? text : "", std::strerror(error));
  if (the_process != nullptr) the_process->abort_job();
  if (held.host != nullptr) held.host->finish();
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
