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

bool understood(const std::string& octets, ChannelCounters& out) {
  CountersHead head;
  if (octets.size() < sizeof head) return false;
  std::memcpy(&head, octets.data(), sizeof head);
  if (std::memcmp(head.magic, CountersHead::kMagic, sizeof head.magic) != 0) return false;
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
    if (const auto at = name.find(channel::kCountersInfix); at != std::string::npos)
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
    if (!fs::exists(fs::path(directory) / pid, error)) fs::remove(file, error);
  });
}

}  // namespace ewarp::cli
