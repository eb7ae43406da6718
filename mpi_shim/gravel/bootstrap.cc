// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/gravel/bootstrap.h"

#include <sys/random.h>

#include <algorithm>
#include <cstdio>

namespace ewarp::gravel {

void set_text(std::span<char> field, const std::string& text) {
  std::fill(field.begin(), field.end(), '\0');
  std::copy_n(text.begin(), std::min(text.size(), field.size() - 1), field.begin());
}

std::string share_secret(const Bootstrap& bootstrap) {
  std::array<std::uint64_t, 2> bits{};
  if (getrandom(bits.data(), sizeof bits, 0) != sizeof bits) bits = {};  // the others wait for the gather
  const auto all = bootstrap.all(bits);
  if (all.empty() || all[0] == std::array<std::uint64_t, 2>{}) return {};
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(all[0][0]),
                static_cast<unsigned long long>(all[0][1]));
  return text;
}

}  // namespace ewarp::gravel
