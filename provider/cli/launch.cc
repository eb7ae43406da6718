// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What run, env and mpirun share.
#include "provider/cli/launch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "provider/cli/commands.h"
#include "provider/cli/libraries.h"

namespace ewarp::cli {

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

std::string with_preload(const std::string& list, const std::string& library) {
  for (std::size_t at = 0; at < list.size();) {
    const auto end = std::min(list.find_first_of(": ", at), list.size());
    if (list.compare(at, end - at, library) == 0) return list;
    at = end + 1;
  }
  return list.empty() ? library : library + ":" + list;
}

int check_libraries(const Libraries& l) {
  if (l.preload.empty() || l.provider.empty())
    return fail(kCannotRun, "{} not found in {}; build it (./scripts/build) or install it (cmake --install build)",
                l.preload.empty() ? "libetherwarp-preload.so" : "libetherwarp-rdmav34.so", fmt::join(l.searched, ", "));
  // The loader splits LD_PRELOAD at these, and knows no quoting.
  if (l.preload.find_first_of(": ") != l.preload.npos)
    return fail(kCannotRun, "the path {} contains a blank or a colon, which LD_PRELOAD cannot carry; move EtherWARP",
                l.preload);
  if (const auto why = why_not_loadable(l.provider); !why.empty())
    return fail(kCannotRun, "the provider cannot be loaded: {}; `etherwarp doctor` says more", why);
  return 0;
}

int check_interfaces(const Settings& settings) {
  for (const auto& [name, value] : settings) setenv(option_variable(name).c_str(), value.c_str(), 1);
  const auto read = read_options();
  std::vector<std::string> problems;
  if (!usable_interfaces(read.options, &problems).empty() && problems.empty()) return 0;
  for (const auto& p : problems) fail(kCannotRun, "{}", p);
  return kCannotRun;
}

std::string resolve(const std::string& program) {
  if (program.find('/') != program.npos) return access(program.c_str(), F_OK) == 0 ? program : "";
  const std::string path = environment("PATH");
  for (std::size_t at = 0; at <= path.size();) {
    const auto end = std::min(path.find(':', at), path.size());
    const std::string candidate = (end == at ? "." : path.substr(at, end - at)) + "/" + program;
    struct stat st;
    if (::stat(candidate.c_str(), &st) == 0 && S_ISREG(st.st_mode) && access(candidate.c_str(), X_OK) == 0)
      return candidate;
    at = end + 1;
  }
  return {};
}

int replace_by(const std::string& path, const std::vector<std::string>& program) {
  std::vector<char*> arguments;
  for (const auto& a : program) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  execv(path.c_str(), arguments.data());
  if (errno == ENOEXEC) {  // a script without #!, which execvp() would give to the shell
    arguments.insert(arguments.begin(), const_cast<char*>("/bin/sh"));
    arguments[1] = const_cast<char*>(path.c_str());
    execv(arguments[0], arguments.data());
  }
  return fail(kCannotRun, "cannot run '{}': {}", path, std::strerror(errno));
}

}  // namespace ewarp::cli
