// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A program whose processes all find the same fault says it once.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ewarp::cli {

// Lets a stream of octets through, but for a job's errors (mpi_shim/channel/core/job_errors.h) that it has let through
// before. All ranks that cannot reach a peer say the same for that matter.
class Repetitions {
 public:
  // What may be written by now. Octets that may belong to such a line are kept back.
  std::string pass(std::string_view octets);
  // What was kept back.
  std::string rest();
  bool keeps_some() const { return !kept_.empty(); }

 private:
  bool is_new(std::string_view line);

  std::string kept_;
  bool inside_ = false;  // the beginning of this line is out
  std::set<std::string, std::less<>> said_;
};

// Runs the program as a child in this process group, its stderr through Repetitions. Signals to this process alone are
// handed on to it; what goes to the group, or comes from the terminal, it has already. Returns its exit status; if it
// was ended by a signal, this process ends so, too. A reader of stderr that is gone ends nothing. An mpirun that hangs
// behind the end of its processes is ended after 10 s: status 1, with a warning.
int supervise(const std::string& path, const std::vector<std::string>& arguments);

}  // namespace ewarp::cli
