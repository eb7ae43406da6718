// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the processes of a job tell each other before they can: by a gather that they bring with them, such as MPI's.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "mpi_shim/gravel/core/types.h"
#include "mpi_shim/gravel/interface.h"

namespace ewarp::gravel {

using Gather = int(const void* mine, void* all, std::size_t octets, void* context);

struct Bootstrap {
  Proc rank;
  int procs;
  Gather* gather;
  void* context;

  // One value of each process, by rank; nothing if that failed.
  template <class T>
  std::vector<T> all(const T& mine) const {
    std::vector<T> out(static_cast<std::size_t>(procs));
    if (gather(&mine, out.data(), sizeof mine, context) != 0) out.clear();
    return out;
  }
};

// Where a process is found, and its boards. Zeros behind texts.
struct Card {
  static constexpr std::uint32_t kVersion = 1;  // of ledgers and of this

  std::uint32_t version = kVersion;
  std::uint32_t key = 0;
  std::uint64_t boards = 0;
  std::array<char, 64> address = {};  // empty: this process cannot take part ...
  std::array<char, 176> why = {};     // ... and why
};

void set_text(std::span<char> field, const std::string& text);

// A secret that the processes of the job share: 128 random bits of process 0, in hexadecimal. Empty if the gather
// failed.
std::string share_secret(const Bootstrap& bootstrap);

}  // namespace ewarp::gravel
