// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the environment says of this process's job.
#pragma once

#include <cstdint>
#include <string>

namespace ewarp::acp {

struct JobPlace {
  std::uint32_t rank = 0, procs = 1;
  std::string root;     // the coordinator; empty: not known yet (meeting), or none: a job of one
  std::string secret;   // of the job
  std::string meeting;  // empty, or where the ranks of a job that Open MPI has started find each other (job/host.h)

  // A Q_Key that other jobs do not have: it keeps their notices out. Keys of memory keep out the rest.
  std::uint32_t qkey() const;
  // Empty, or what is wrong. Without the variables of a launcher the process is a job of its own.
  static std::string from_environment(JobPlace* out);
};

}  // namespace ewarp::acp
