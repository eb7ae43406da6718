// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/cli/channel_counters.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>

#include "mpi_shim/channel/core/counters_page.h"

namespace ewarp::cli {
namespace {

namespace fs = std::filesystem;
using channel::CounterName;
using channel::CountersHead;
using channel::CounterValue;

constexpr std::size_t kMostCounters = 1000;

// Text of at most so many octets; it comes from another process, may have no end, and is for a terminal.
std::string text_at(const std::string& octets, std::size_t at, std::size_t most) {
  std::string out(octets.data() + at, strnlen(octets.data() + at, most));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

std::string contents(const fs::path& file) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return {};
  std::string out(channel::counters_octets(kMostCounters), '\0');
  const ssize_t n = read(fd, out.data(), out.size());
  close(fd);
  out.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return out;
}

bool has_magic(const std::string& octets, const char (&magic)[sizeof CountersHead::kMagic]) {
  return octets.size() >= sizeof(CountersHead) &&
         std::memcmp(octets.data() + offsetof(CountersHead, magic), magic, sizeof magic) == 0;
}

// In the directory that $ETHERWARP_RUNDIR names lie other files too. The magic is written last.
bool is_ours(const std::string& octets) {
  return has_magic(octets, CountersHead::kMagic) || has_magic(octets, {});
}

bool understood(const std::string& octets, ChannelCounters& out) {
  if (!has_magic(octets, CountersHead::kMagic)) return false;
  CountersHead head;
  std::memcpy(&head, octets.data(), sizeof head);
  if (head.count > kMostCounters || octets.size() < channel::counters_octets(head.count)) return false;
  out.address = text_at(octets, offsetof(CountersHead, address), sizeof head.address);
  for (std::size_t i = 0; i < head.count; ++i) {
    CounterValue value = 0;
    std::memcpy(&value, octets.data() + channel::values_offset(head.count) + i * sizeof value, sizeof value);
    out.values.emplace_back(text_at(octets, channel::names_offset() + i * sizeof(CounterName), sizeof(CounterName)),
                            value);
  }
  return true;
}

template <class F>
void for_each_file(const fs::path& directory, F&& f) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    const auto at = name.find(channel::kCountersInfix);
    if (at != std::string::npos && at > 0 && name.find_first_not_of("0123456789") == at)
      f(entry.path(), name.substr(0, at));
  }
}

}  // namespace

std::vector<ChannelCounters> channel_counters(const std::string& path) {
  constexpr std::size_t kMostOfAProcess = 64;
  std::vector<ChannelCounters> out;
  const fs::path page(path);
  for_each_file(page.parent_path(), [&](const fs::path& file, const std::string& pid) {
    ChannelCounters counters;
    if (out.size() < kMostOfAProcess && pid == page.filename() && understood(contents(file), counters))
      out.push_back(std::move(counters));
  });
  return out;
}

void remove_stale_channel_counters(const std::string& directory) {
  for_each_file(directory, [&](const fs::path& file, const std::string& pid) {
    std::error_code error;
    if (!fs::exists(fs::path(directory) / pid, error) && is_ours(contents(file))) fs::remove(file, error);
  });
}

}  // namespace ewarp::cli
