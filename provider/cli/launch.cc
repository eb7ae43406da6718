// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What run, env and mpirun share.
#include "provider/cli/launch.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "provider/cli/commands.h"
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

}  // namespace

void name_host_in_failures() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) failure_prefix() = fmt::format("error: host {}: ", host.data());
}

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

namespace {

// The loader takes no LD_PRELOAD for such a program.
const char* gains(const std::string& path, const struct stat& st) {
  if ((st.st_mode & S_ISUID) != 0 && st.st_uid != geteuid()) return "is set-user-ID";
  if ((st.st_mode & S_ISGID) != 0 && (st.st_mode & S_IXGRP) != 0 && st.st_gid != getegid()) return "is set-group-ID";
  if (geteuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0) return "has capabilities";
  return nullptr;
}

}  // namespace

int find_program(const std::string& program, std::string* out) {
  const std::string path = resolve(program);
  if (path.empty())
    return fail(kNotFound, "program '{}' not found{}", program,
                program.find('/') == std::string::npos ? " in PATH; install it or give its path" : "; check the path");
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0 && (S_ISDIR(st.st_mode) || access(path.c_str(), X_OK) != 0))
    return fail(kCannotRun, "'{}' is not an executable program; check the path, or chmod +x", path);
  if (is_static(path))
    return fail(kCannotRun, "'{}' is statically linked, so EtherWARP cannot be loaded into it; link it dynamically",
                path);
  if (const char* how = gains(path, st))
    return fail(kCannotRun, "'{}' {}, so the loader ignores LD_PRELOAD; list the library in /etc/ld.so.preload", path,
                how);
  *out = path;
  return 0;
}

void Reaping::begin() {
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &usual, &before_);
}

void Reaping::end() {
  sigaction(SIGCHLD, &before_, nullptr);
}

bool is_ignored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
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
