// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The functions of gravel.h: arguments are looked at, nothing is thrown out of here.
#include "mpi_shim/gravel/gravel.h"

#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "mpi_shim/gravel/job.h"
#include "mpi_shim/gravel/text.h"

#define EXPORT __attribute__((visibility("default")))

namespace ewarp::gravel {

const char* text(Error error) {
  switch (error) {
    case Error::none:
      return "no error";
    case Error::argument:
      return "an argument cannot be";
    case Error::rank:
      return "no such process";
    case Error::tag:
      return "no such tag";
    case Error::request:
      return "no such request, or one of another kind";
    case Error::state:
      return "not at this time";
    case Error::unregistered:
      return "the memory is in no registered buffer";
    case Error::range:
      return "beyond the end of the other side's buffer";
    case Error::peer:
      return "the other process has ended, or cannot be reached";
    case Error::busy:
      return "requests that are not done use it";
    case Error::memory:
      return "no memory, or too many requests";
    case Error::device:
      return "no RDMA device";
    case Error::job:
      return "the processes could not tell each other where they are";
    case Error::full:
      break;
  }
  return "no such error";
}

namespace {

static_assert(GRAVEL_ERR_JOB == static_cast<int>(Error::job) && GRAVEL_ERR_RANGE == static_cast<int>(Error::range) &&
              GRAVEL_ERR_STATE == static_cast<int>(Error::state));
static_assert(GRAVEL_ANY_SOURCE == kAnySource && GRAVEL_ANY_TAG == kAnyTag);

// Not destroyed at the end of the process: a forked child ends, too, and must not touch what is its parent's.
std::unique_ptr<Job>& job = *new std::unique_ptr<Job>;
std::string reason;

int refuse(Error error, const char* why) {
  reason = why;
  return static_cast<int>(error);
}
int refuse(Error error) {
  return refuse(error, text(error));
}

// work: gives an Error.
template <class Work>
int guarded(Work&& work) noexcept {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return refuse(Error::memory);
  } catch (const std::exception& e) {
    return refuse(Error::memory, e.what());
  }
}

// A call of a job that runs. `valid`: its arguments can be.
template <class Call>
int in_job(bool valid, Call&& call) noexcept {
  return guarded([&] {
    if (!job) return refuse(Error::state, "gravel_init() was not called, or gravel_finalize() was");
    if (!valid) return refuse(Error::argument);
    const Error e = call(*job);
    if (e != Error::none) reason = job->reason();
    return static_cast<int>(e);
  });
}

}  // namespace
}  // namespace ewarp::gravel

using namespace ewarp::gravel;

extern "C" {

EXPORT const char* gravel_strerror(int code) {
  return text(static_cast<Error>(code));
}

EXPORT const char* gravel_reason(void) {
  return reason.c_str();
}

EXPORT int gravel_start(int rank, int procs, gravel_allgather* gather, void* context) {
  return guarded([&] {
    if (job) return refuse(Error::state, "gravel_init() was called before");
    if (gather == nullptr || procs < 1 || rank < 0 || rank >= procs) return refuse(Error::argument);
    Error error;
    job = Job::start({.rank = rank, .procs = procs, .gather = gather, .context = context}, &error, &reason);
    return static_cast<int>(error);
  });
}

EXPORT int gravel_finalize(void) {
  return guarded([&] {
    if (!job) return refuse(Error::state, "gravel_init() was not called");
    const bool busy = job->requests() > 0;
    job.reset();
    return busy ? refuse(Error::busy) : 0;
  });
}

EXPORT int gravel_register_buffer(void* buf, size_t size) {
  return in_job(buf != nullptr && size > 0, [&](Job& j) { return j.register_buffer(buf, size); });
}

EXPORT int gravel_unregister_buffer(void* buf, size_t size) {
  return in_job(buf != nullptr && size > 0, [&](Job& j) { return j.unregister_buffer(buf, size); });
}

EXPORT int gravel_post_rcv_buffer_rdma(int proc, void* buf, size_t size, int tag, gravel_request* request) {
  return in_job((buf != nullptr || size == 0) && request != nullptr,
                [&](Job& j) { return j.post_receive_buffer(proc, buf, size, tag, request); });
}

EXPORT int gravel_wait_send_request_rdma(int* proc, int* tag, size_t* size) {
  return in_job(proc != nullptr && tag != nullptr && size != nullptr,
                [&](Job& j) { return j.wait_send_request(proc, tag, size); });
}

EXPORT int gravel_wait_send_buffer_rdma(int* proc, int* tag, size_t* size, gravel_request* request) {
  return in_job(proc != nullptr && tag != nullptr && size != nullptr && request != nullptr,
                [&](Job& j) { return j.wait_send_buffer(proc, tag, size, request); });
}

EXPORT int gravel_post_os_get(gravel_request request, void* buf, size_t size, size_t offset) {
  return in_job(buf != nullptr || size == 0, [&](Job& j) { return j.post_get(request, buf, size, offset); });
}

EXPORT int gravel_post_send_request_rdma(int proc, size_t size, int tag, gravel_request* request) {
  return in_job(request != nullptr, [&](Job& j) { return j.post_send_request(proc, size, tag, request); });
}

EXPORT int gravel_post_send_buffer_rdma(int proc, const void* buf, size_t size, int tag, gravel_request* request) {
  return in_job((buf != nullptr || size == 0) && request != nullptr,
                [&](Job& j) { return j.post_send_buffer(proc, buf, size, tag, request); });
}

EXPORT int gravel_wait_rcv_buffer(int* proc, int* tag, size_t* size, gravel_request* request) {
  return in_job(proc != nullptr && tag != nullptr && size != nullptr && request != nullptr,
                [&](Job& j) { return j.wait_receive_buffer(proc, tag, size, request); });
}

EXPORT int gravel_post_os_put(gravel_request request, const void* buf, size_t size, size_t offset) {
  return in_job(buf != nullptr || size == 0, [&](Job& j) { return j.post_put(request, buf, size, offset); });
}

EXPORT int gravel_send_fin(gravel_request request) {
  return in_job(true, [&](Job& j) { return j.send_fin(request); });
}

EXPORT int gravel_test(gravel_request request, int* flag) {
  return in_job(flag != nullptr, [&](Job& j) {
    const Error e = j.test(request);
    *flag = e != Error::full && e != Error::state;
    return e == Error::full ? Error::none : e;
  });
}

EXPORT int gravel_wait(gravel_request request) {
  return in_job(true, [&](Job& j) { return j.wait(request); });
}

EXPORT int gravel_waitall(int count, gravel_request requests[]) {
  return in_job(count >= 0 && (count == 0 || requests != nullptr), [&](Job& j) {
    return j.wait_all({requests, static_cast<std::size_t>(count)});
  });
}

}  // extern "C"
