// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// `etherwarp stat`: the counters of every EtherWARP process on this machine that this user may read.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "provider/base/stats.h"
#include "provider/cli/channel_counters.h"
#include "provider/cli/commands.h"
#include "provider/cli/stat_json.h"
#include "provider/cli/stat_tables.h"

namespace ewarp::cli {
namespace {

// As many as the terminal has room for below so many lines.
std::size_t rows_that_fit(std::size_t lines_above) {
  constexpr std::size_t kLeast = 5, kElsewhere = 20;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return kElsewhere;
  const std::size_t used = lines_above + 4;  // an empty line, the headings, what was left out, the cursor
  return size.ws_row > used + kLeast ? size.ws_row - used : kLeast;
}

std::string report(const StatArguments& a, Rates* rates, bool* found) {
  std::vector<std::string> unreadable;
  auto all = stats::snapshots(&unreadable);
  remove_stale_channel_counters(stats::run_directory());
  std::erase_if(all, [&](const auto& s) { return (s.ended && !a.ended) || (a.pid != 0 && s.page->pid != a.pid); });
  constexpr std::size_t kNamed = 3;  // of the files that are ignored
  for (std::size_t i = 0; i < std::min(unreadable.size(), kNamed); ++i)
    fail(1, "{}; ignored (remove the file if nobody needs it)", unreadable[i]);
  if (unreadable.size() > kNamed) fail(1, "and {} more such files", unreadable.size() - kNamed);
  *found = !all.empty();
  if (a.json) return stat_json(all);
  if (all.empty())
    return fmt::format("no EtherWARP process{} is visible to this user\n",
                       a.pid != 0 ? fmt::format(" with pid {}", a.pid) : "");
  if (rates != nullptr) rates->next_round();
  std::string out = summary(all, rates);
  if (!a.verbose) {
    const auto lines = static_cast<std::size_t>(std::count(out.begin(), out.end(), '\n'));
    return out + queue_pairs(all, rates, rows_that_fit(lines));
  }
  for (const auto& s : all) out += details(s, rates);
  return out;
}

}  // namespace

int stat(const StatArguments& a) {
  bool found = false;
  if (a.watch_s == 0) {
    fmt::print("{}", report(a, nullptr, &found));
    return a.pid != 0 && !found ? 1 : 0;
  }
  const bool screen = isatty(STDOUT_FILENO) == 1 && !a.json;
  Rates rates;
  for (unsigned round = 1;; ++round) {
    const std::string text = report(a, a.json ? nullptr : &rates, &found);
    fmt::print("{}{}", screen ? "\033[H\033[2J" : "", text);
    if (std::fflush(stdout) != 0) return 1;  // nobody reads any more
    if (a.count != 0 && round == a.count) return 0;
    std::this_thread::sleep_for(std::chrono::duration<double>(a.watch_s));
  }
}

}  // namespace ewarp::cli
