// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/base/log.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>

#include "provider/base/options.h"

namespace ewarp::log {
namespace {

constexpr std::string_view kNames[] = {"error", "warn", "info", "debug"};

Level configured_level() {
  const auto* name = std::find(std::begin(kNames), std::end(kNames), options().log);
  return name == std::end(kNames) ? Level::error : static_cast<Level>(name - std::begin(kNames));
}

}  // namespace

bool enabled(Level level) {
  static const Level most = configured_level();
  return level <= most;
}

void explain_shortage(int error) {
  static std::atomic<bool> said{false};
  if ((error != EMFILE && error != ENFILE) || said.exchange(true)) return;
  if (error == ENFILE)
    return log::error("the system is out of file descriptors; sysctl fs.file-max raises their number");
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  log::error(
      "out of file descriptors: each connection takes one, and {} are allowed; `ulimit -Hn` (limits.conf, container "
      "settings) raises that",
      limit.rlim_cur);
}

void write(Level level, std::string_view text) {
  const int saved_errno = errno;
  std::string line = fmt::format("etherwarp: {}: {}", kNames[static_cast<std::size_t>(level)], text);
  std::replace(line.begin(), line.end(), '\n', ' ');  // an event is one line, whoever wrote its text
  line += '\n';
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  errno = saved_errno;
}

}  // namespace ewarp::log
