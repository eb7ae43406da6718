// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The counters of processes as tables for people.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "provider/base/stats.h"

namespace ewarp::cli {

// Counters of the round before, and of this one, for rates.
class Rates {
 public:
  // Names a device or a queue pair of a process.
  using Key = std::pair<std::int32_t, std::string>;

  void next_round() {
    before_ = std::exchange(now_, {});
    const auto time = std::chrono::steady_clock::now();
    elapsed_ = std::chrono::duration<double>(time - std::exchange(time_, time)).count();
  }
  // Octets a second; nothing in the round in which it is first seen.
  std::optional<std::pair<double, double>> of(const Key& key, const stats::Traffic& t) {
    const Octets octets = now_[key] = {t.tx_octets, t.rx_octets};
    const auto old = before_.find(key);
    // Less than before: another of the same name.
    if (old == before_.end() || elapsed_ <= 0 || octets.tx < old->second.tx || octets.rx < old->second.rx)
      return std::nullopt;
    return std::pair(static_cast<double>(octets.tx - old->second.tx) / elapsed_,
                     static_cast<double>(octets.rx - old->second.rx) / elapsed_);
  }

 private:
  struct Octets {
    std::uint64_t tx = 0, rx = 0;
  };
  std::map<Key, Octets> before_, now_;
  std::chrono::steady_clock::time_point time_{};
  double elapsed_ = 0;
};

// Each takes the rates of a process's parts into account if rates is not null, and may be called once a round.

// A row for each device that is in use, and for each process that uses none.
std::string summary(std::span<const stats::Snapshot> processes, Rates* rates);
// The queue pairs of these processes; if they are more than `most`, the busiest. Empty if there are none.
std::string queue_pairs(std::span<const stats::Snapshot> processes, Rates* rates, std::size_t most);
// Everything that is counted of one process and is not zero, and its queue pairs.
std::string details(const stats::Snapshot& process, Rates* rates);

}  // namespace ewarp::cli
