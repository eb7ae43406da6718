// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which transport a process uses.
#pragma once

#include <memory>
#include <string>

#include "mpi_shim/acp/verbs/transport.h"

namespace ewarp::acp {

// What a transport has to know of its process.
struct Surroundings {
  std::string device;  // empty: chosen
  bool one_host = false;
  std::uint32_t rank = 0, procs = 1;
  std::uint32_t qkey = 0;  // of the job
  std::string secret;      // of the job; empty: this process is alone
};

// automatic: RC, if RD cannot be used. Null, and why.
std::unique_ptr<Transport> open_transport(TransportKind kind, const Surroundings& own, std::string* why);

}  // namespace ewarp::acp
