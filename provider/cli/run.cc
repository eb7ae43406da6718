// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// `etherwarp run` and `etherwarp env`: the environment in which a verbs program finds EtherWARP's devices.
#include <cstdlib>

#include "provider/cli/commands.h"
#include "provider/cli/job.h"
#include "provider/cli/launch.h"
#include "provider/cli/libraries.h"

namespace ewarp::cli {
namespace {

std::string quoted(const std::string& value) {
  std::string out = "'";
  for (const char c : value) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

// What is to be exported, but for settings.
std::vector<Variable> rank_variables(const Libraries& libraries) {
  std::vector<Variable> out = job_variables();
  for (auto& v : host_variables(libraries)) out.push_back(std::move(v));
  out.push_back({kSecretVariable, job_secret(), false});
  return out;
}

// As Open MPI looks for it: in PATH, then here. What is wrong with it the system says.
int find_rank(const std::string& program, std::string* out) {
  *out = resolve(program);
  if (out->empty() && program.find('/') == program.npos) *out = resolve("./" + program);
  return out->empty() ? fail(kNotFound, "program '{}' not found; install it there or give its path", program) : 0;
}

int run_rank(const Settings& settings, const std::vector<std::string>& program) {
  name_host_in_failures();
  std::string path;
  if (const int status = find_rank(program.front(), &path); status != 0) return status;
  const Libraries libraries = find_libraries();
  if (const int status = check_mpi_libraries(libraries); status != 0) return status;
  if (const int status = check_interfaces(settings); status != 0) return status;
  set_variables(job_variables(), true);
  set_variables(host_variables(libraries));
  return replace_by(path, program);
}

}  // namespace

int run(const Settings& settings, bool mpi, const std::vector<std::string>& program) {
  if (mpi) return run_rank(settings, program);
  std::string path;
  if (const int status = find_program(program.front(), &path); status != 0) return status;
  const Libraries libraries = find_libraries();
  if (const int status = check_libraries(libraries); status != 0) return status;
  if (const int status = check_interfaces(settings); status != 0) return status;
  setenv(kPreloadVariable, with_preload(environment(kPreloadVariable), libraries.preload).c_str(), 1);

  return replace_by(path, program);
}

int env(const Settings& settings, bool mpi) {
  const Libraries libraries = find_libraries();
  if (const int status = mpi ? check_mpi_libraries(libraries) : check_libraries(libraries); status != 0) return status;
  std::vector<Variable> variables = {
      {kPreloadVariable, with_preload(environment(kPreloadVariable), libraries.preload), true}};
  if (mpi) variables = rank_variables(libraries);
  for (const auto& v : variables) {
    const std::string now = environment(v.name.c_str());
    fmt::print("export {}={}\n", v.name, quoted(v.wins || now.empty() ? v.value : now));
  }
  for (const auto& [name, value] : settings) fmt::print("export {}={}\n", option_variable(name), quoted(value));
  return 0;
}

}  // namespace ewarp::cli
