// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A job that Open MPI's mpirun has started has no coordinator of its own: rank 0 coordinates it, in a thread, and tells
// the other ranks where, at a Unix socket (an abstract name). Such sockets tell the user at the other end: other users'
// processes are told nothing, and not believed.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "mpi_shim/acp/job/coordinator.h"
#include "mpi_shim/acp/job/place.h"

namespace ewarp::acp {

// Of rank 0.
class JobHost {
 public:
  JobHost() = default;
  ~JobHost();
  JobHost(const JobHost&) = delete;
  JobHost& operator=(const JobHost&) = delete;

  // place: its root and secret are set. Empty, or why not.
  std::string start(JobPlace* place);
  // Until the others have left, two seconds at most. Whoever has not is told nothing more.
  void finish();

 private:
  std::string listen(const std::string& meeting);
  void run();
  void answer_all();

  std::unique_ptr<Coordinator> coordinator_;  // of the thread
  std::string answer_;
  int listener_ = -1;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

// Of the other ranks: waits for rank 0, which tells the root and the secret. Empty, or why not.
std::string ask_host(JobPlace* place);

// kSecretOctets hexadecimal digits; empty: there are no random numbers to be had.
std::string new_secret();

}  // namespace ewarp::acp
