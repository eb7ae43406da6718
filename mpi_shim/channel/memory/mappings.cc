// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/memory/mappings.h"

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

namespace ewarp::channel {

std::vector<Range> private_mappings(std::istream& maps, const Range& range) {
  std::vector<Range> out;
  std::uintptr_t covered = range.begin;
  for (std::string line; covered < range.end && std::getline(maps, line);) {
    Range mapping;
    char rights[5] = {};
    std::uint64_t inode = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %" SCNu64, &mapping.begin, &mapping.end,
                    rights, &inode) != 4)
      return {};
    if (mapping.end <= covered) continue;
    if (mapping.begin > covered || rights[3] != 'p' || inode != 0) return {};
    out.push_back(mapping);
    covered = mapping.end;
  }
  if (covered < range.end) return {};
  return out;
}

std::vector<Range> private_mappings(const Range& range) {
  std::ifstream maps("/proc/self/maps");
  return private_mappings(maps, range);
}

}  // namespace ewarp::channel
