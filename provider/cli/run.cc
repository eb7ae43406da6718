// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// `etherwarp run` and `etherwarp env`: the environment in which a verbs program finds EtherWARP's devices.
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "provider/cli/commands.h"
#include "provider/cli/launch.h"
#include "provider/cli/libraries.h"

namespace ewarp::cli {
namespace {

// True for an ELF program without dynamic loader: nothing can be preloaded into it.
bool is_static(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  Elf64_Ehdr header{};
  bool elf = pread(fd, &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header) &&
             std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64;
  // The loader itself may be asked to run a program with other libraries than the system's.
  bool loader = std::filesystem::path(path).filename().string().starts_with("ld-linux");
  for (unsigned i = 0; elf && i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    const auto at = static_cast<off_t>(header.e_phoff + i * sizeof segment);
    elf = pread(fd, &segment, sizeof segment, at) == static_cast<ssize_t>(sizeof segment);
    loader = loader || segment.p_type == PT_INTERP;
  }
  close(fd);
  return elf && !loader;
}

std::string quoted(const std::string& value) {
  std::string out = "'";
  for (const char c : value) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

}  // namespace

int run(const Settings& settings, const std::vector<std::string>& program) {
  const std::string path = resolve(program.front());
  if (path.empty())
    return fail(
        kNotFound, "program '{}' not found{}", program.front(),
        program.front().find('/') == std::string::npos ? " in PATH; install it or give its path" : "; check the path");
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0 && (S_ISDIR(st.st_mode) || access(path.c_str(), X_OK) != 0))
    return fail(kCannotRun, "'{}' is not an executable program; check the path, or chmod +x", path);
  if (is_static(path))
    return fail(kCannotRun, "'{}' is statically linked, so EtherWARP cannot be loaded into it; link it dynamically",
                path);
  if ((st.st_mode & S_ISUID) != 0 && st.st_uid != geteuid())
    return fail(kCannotRun,
                "'{}' is set-user-ID, so the loader ignores LD_PRELOAD; list the library in /etc/ld.so.preload", path);

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
