// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/cli/counter_names.h"

#include <fmt/format.h>

namespace ewarp::cli {

// Written here, as the tool needs no libibverbs.
std::string state_name(std::uint32_t state) {
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state < std::size(kNames) ? kNames[state] : fmt::format("{}", state);
}

std::string type_name(std::uint32_t type) {
  return type == 2 ? "RC" : type == 4 ? "UD" : type == 0xff ? "RD" : fmt::format("{}", type);
}

std::string device_name(const stats::Page& p, std::uint32_t index) {
  return index < p.device_count ? p.devices[index].name : "?";
}

}  // namespace ewarp::cli
