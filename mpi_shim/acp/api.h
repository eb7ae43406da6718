// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the functions of acp.h share: the process that they speak for.
#pragma once

#include <cerrno>
#include <new>

#include "mpi_shim/acp/acp.h"
#include "mpi_shim/acp/process.h"

#define EWARP_ACP_EXPORT __attribute__((visibility("default")))

namespace ewarp::acp {

// Null with ENOTCONN, before acp_init() and behind acp_finalize().
Process* process();

// f(process) with the lock held; `failed` with errno if there is no process or no memory. No exception leaves. The
// analysis does not see that f asks for the lock of its argument; it does see what f does.
template <class Result, class F>
Result with_process(Result failed, F f) noexcept EWARP_NO_LOCK_ANALYSIS {
  Process* p = process();
  if (p == nullptr) return failed;
  try {
    const llp::Guard guard(p->mutex);
    return f(*p);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return failed;
  }
}

}  // namespace ewarp::acp
