// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The counters of an endpoint where `etherwarp stat` finds them: a file in the directory in which EtherWARP publishes
// its own ($ETHERWARP_RUNDIR, or /dev/shm/etherwarp-UID). Without that directory nothing is published.
#pragma once

#include <cstdint>
#include <string>

#include "mpi_shim/channel/core/counters.h"
#include "mpi_shim/channel/core/counters_page.h"

namespace ewarp::channel {

class PublishedCounters {
 public:
  PublishedCounters() = default;
  ~PublishedCounters();
  PublishedCounters(const PublishedCounters&) = delete;
  PublishedCounters& operator=(const PublishedCounters&) = delete;

  // From now on they are counted in the file. Requires: `counters` ends before this does.
  void publish(Counters& counters, const std::string& address, std::uint16_t port);

 private:
  using Page = CountersPage<Counters::kSize>;
  Page* page_ = nullptr;
  std::string path_;
  bool keep_ = false;  // ETHERWARP_STATS_KEEP
};

}  // namespace ewarp::channel
