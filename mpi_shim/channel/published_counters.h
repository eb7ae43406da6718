// The counters of an endpoint where `etherwarp stat` finds them: a file in the directory in which EtherWARP publishes
// its own ($ETHERWARP_RUNDIR, or /dev/shm/etherwarp-UID). Without that directory nothing is published.
#pragma once

#include <cstdint>
#include <string>

#include "mpi_shim/channel/counters.h"

namespace ewarp::channel {

// The file, all of it in the byte order of the machine: names are text, so readers need not know which counters there
// are.
struct PublishedPage {
  static constexpr char kMagic[8] = {'E', 'W', 'C', 'H', 'A', 'N', '1', '\0'};
  char magic[8];
  std::uint32_t pid, count;
  char address[64];
  char names[Counters::kSize][32];
  std::uint64_t values[Counters::kSize];
};

class PublishedCounters {
 public:
  PublishedCounters() = default;
  ~PublishedCounters();
  PublishedCounters(const PublishedCounters&) = delete;
  PublishedCounters& operator=(const PublishedCounters&) = delete;

  // From now on they are counted in the file. Requires: `counters` ends before this does.
  void publish(Counters& counters, const std::string& address, std::uint16_t port);

 private:
  PublishedPage* page_ = nullptr;
  std::string path_;
  bool keep_ = false;  // ETHERWARP_STATS_KEEP
};

}  // namespace ewarp::channel
