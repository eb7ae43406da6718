// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What `run`, `env` and `mpirun` share: the environment of programs over EtherWARP, and becoming such a program.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "provider/cli/commands.h"
#include "provider/cli/libraries.h"

namespace ewarp::cli {

inline constexpr char kPreloadVariable[] = "LD_PRELOAD";
inline constexpr char kFabricPathVariable[] = "FI_PROVIDER_PATH";

// Empty if it is not set.
std::string environment(const char* variable);

// The list with `library` in front; unchanged if it is in it already (`etherwarp run` inside `etherwarp run`).
std::string with_preload(const std::string& list, const std::string& library);

// 0, or the exit status after having said what is missing.
int check_libraries(const Libraries& libraries);
// The same for interfaces under these settings, which the environment has from now on.
int check_interfaces(const Settings& settings);

// The path that execvp() would take, empty if there is none.
std::string resolve(const std::string& program);

// The program's path, after having seen that EtherWARP can be loaded into it. 0, or the exit status after having said
// why not.
int find_program(const std::string& program, std::string* path);

// A caller may have left SIGCHLD ignored, with which the kernel says nothing of children that end.
class Reaping {
 public:
  // From now on it says so.
  void begin();
  // In a child: as the caller had it.
  void end();

 private:
  struct sigaction before_ {};
};

// Whether the caller wants nothing of it, as nohup does.
bool is_ignored(int signal);

// Executes the file; returns only on failure, with the exit status.
int replace_by(const std::string& path, const std::vector<std::string>& program);

}  // namespace ewarp::cli
