// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/cli/libraries.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

namespace ewarp::cli {
namespace fs = std::filesystem;

namespace {

constexpr char kPreload[] = "libetherwarp-preload.so";
constexpr char kProvider[] = "libetherwarp-rdmav34.so";

std::string find(const std::vector<fs::path>& directories, const char* name) {
  std::error_code ignored;
  for (const auto& d : directories)
    if (fs::is_regular_file(d / name, ignored)) return (d / name).lexically_normal().string();
  return {};
}

}  // namespace

std::string own_path() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).string();
}

Libraries find_libraries() {
  const fs::path prefix = fs::path(own_path()).parent_path().parent_path();
  const std::vector<fs::path> directories = {
      prefix / "lib",                        // build tree: bin/ and lib/ side by side
      prefix / EWARP_LIBDIR / "etherwarp",   // installed: the preload library
      prefix / EWARP_LIBDIR / "libibverbs",  // installed: the provider, where rdma-core keeps its own
      prefix / EWARP_LIBDIR,
      prefix / "lib" / "libfabric",  // the libfabric provider, alone in its directory
      prefix / EWARP_LIBDIR / "libfabric",
  };
  Libraries out;
  for (const auto& d : directories)
    if (std::find(out.searched.begin(), out.searched.end(), d.string()) == out.searched.end())
      out.searched.push_back(d.string());
  out.preload = find(directories, kPreload);
  out.fabric = find(directories, kFabricProvider);
  const char* named = std::getenv("ETHERWARP_PROVIDER");
  out.provider = named != nullptr && named[0] != '\0' ? named : find(directories, kProvider);
  return out;
}

std::string why_not_loadable(const std::string& library) {
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return std::strerror(errno);
  const pid_t child = fork();
  if (child < 0) return std::strerror(errno);
  if (child == 0) {
    close(pipe_fds[0]);
    int status = 0;
    if (dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
      const char* why = dlerror();
      [[maybe_unused]] const auto written = write(pipe_fds[1], why, std::strlen(why));
      status = 1;
    }
    _exit(status);
  }
  close(pipe_fds[1]);
  std::string why;
  char octets[512];
  for (ssize_t n; (n = read(pipe_fds[0], octets, sizeof octets)) > 0;) why.append(octets, static_cast<std::size_t>(n));
  close(pipe_fds[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    return fmt::format("loading it ended with signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (status != 0 && why.empty()) why = "loading it failed";
  return why;
}

}  // namespace ewarp::cli
