// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/base/log.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

#include "provider/base/options.h"

namespace ewarp::log {
namespace {

constexpr std::string_view kNames[] = {"error", "warn", "info", "debug"};

Level configured_level() {
  const auto* name = std::find(std::begin(kNames), std::end(kNames), options().log);
  return name == std::end(kNames) ? Level::error : static_cast<Level>(name - std::begin(kNames));
}

}  // namespace

// Whoever finds it unknown asks: a child that was forked while another thread asked for all would wait for ever.
bool enabled(Level level) {
  constexpr int kUnknown = -1;
  static std::atomic<int> known{kUnknown};
  int most = known.load(std::memory_order_relaxed);
  if (most == kUnknown) known.store(most = static_cast<int>(configured_level()), std::memory_order_relaxed);
  return static_cast<int>(level) <= most;
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

void write(Level level, std::string_view text) noexcept {
  const int saved_errno = errno;
  std::array<char, kLongestLine> line;
  char* const last = line.data() + line.size() - 1;
  char* end = line.data();
  for (const std::string_view part :
       {std::string_view("etherwarp: "), kNames[static_cast<std::size_t>(level)], std::string_view(": "), text})
    end = std::copy_n(part.begin(), std::min<std::size_t>(part.size(), static_cast<std::size_t>(last - end)), end);
  std::replace(line.data(), end, '\n', ' ');  // an event is one line, whoever wrote its text
  *end++ = '\n';
  // Not write(), which is a cancellation point.
  syscall(SYS_write, STDERR_FILENO, line.data(), static_cast<std::size_t>(end - line.data()));
  errno = saved_errno;
}

}  // namespace ewarp::log
