// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What devices are called: "ewarp_eth0" on the interface eth0, its twin "ewarpx_eth0".
#pragma once

#include <string>
#include <string_view>

namespace ewarp {

inline std::string device_name(std::string_view interface, bool twin) {
  return (twin ? "ewarpx_" : "ewarp_") + std::string(interface);
}

}  // namespace ewarp
