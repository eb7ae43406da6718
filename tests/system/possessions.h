// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a process has, for tests that look for what is left behind.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

struct Possessions {
  std::ptrdiff_t fds = 0, threads = 0;
  bool operator==(const Possessions&) const = default;
};

inline Possessions possessions() {
  const auto entries = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  };
  return {entries("/proc/self/fd"), entries("/proc/self/task")};
}

inline long resident_kib() {
  long pages = 0;
  std::ifstream("/proc/self/statm").ignore(100, ' ') >> pages;
  return pages * sysconf(_SC_PAGESIZE) / 1024;
}

// Prints them once nothing has changed in so many looks: former connections close in the background. Not for so long: a
// machine that takes all CPUs away for a second lets none of them close meanwhile.
inline void report_possessions(std::uint64_t number) {
  using namespace std::chrono_literals;
  using Clock = std::chrono::steady_clock;
  constexpr int kLooks = 50;
  Possessions settled = possessions();
  const auto until = Clock::now() + 60s;
  for (int same = 0; same < kLooks && Clock::now() < until; ++same) {
    std::this_thread::sleep_for(20ms);
    if (const Possessions now = possessions(); now != settled) {
      settled = now;
      same = 0;
    }
  }
  std::printf("after %ju: fds %td threads %td rss_kib %ld\n", static_cast<std::uintmax_t>(number), settled.fds,
              settled.threads, resident_kib());
}

// User and system time of this process so far.
inline double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}
