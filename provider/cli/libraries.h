// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Where EtherWARP's own libraries are, and whether they can be used.
#pragma once

#include <string>
#include <vector>

namespace ewarp::cli {

inline constexpr char kFabricProvider[] = "libetherwarp-fi.so";

// Of this program, without links.
std::string own_path();

struct Libraries {
  std::string preload;   // libetherwarp-preload.so, empty if not found
  std::string provider;  // libetherwarp-rdmav34.so, empty if not found
  std::string fabric;    // kFabricProvider, empty if not found
  std::vector<std::string> searched;
};
// Beside this program in a build tree, or where `cmake --install` put them. ETHERWARP_PROVIDER names another provider.
Libraries find_libraries();

// Opens the library in a child process, so that nothing of it stays here. Empty: it works; else the loader's words.
std::string why_not_loadable(const std::string& library);

}  // namespace ewarp::cli
