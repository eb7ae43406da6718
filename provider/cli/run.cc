// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// `etherwarp run` and `etherwarp env`: the environment in which a verbs program finds EtherWARP's devices.
#include <cstdlib>

#include "provider/cli/commands.h"
#include "provider/cli/launch.h"
#include "provider/cli/libraries.h"

namespace ewarp::cli {
namespace {

std::string quoted(const std::string& value) {
  std::string out = "'";
  for (const char c : value) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

}  // namespace

int run(const Settings& settings, const std::vector<std::string>& program) {
  std::string path;
  if (const int status = find_program(program.front(), &path); status != 0) return status;
  const Libraries libraries = find_libraries();
  if (const int status = check_libraries(libraries); status != 0) return status;
  if (const int status = check_interfaces(settings); status != 0) return status;
  setenv(kPreloadVariable, with_preload(environment(kPreloadVariable), libraries.preload).c_str(), 1);

  return replace_by(path, program);
}

int env(const Settings& settings) {
  const Libraries libraries = find_libraries();
  if (const int status = check_libraries(libraries); status != 0) return status;
  fmt::print("export {}={}\n", kPreloadVariable,
             quoted(with_preload(environment(kPreloadVariable), libraries.preload)));
  for (const auto& [name, value] : settings) fmt::print("export {}={}\n", option_variable(name), quoted(value));
  return 0;
}

}  // namespace ewarp::cli
