// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The provider interfaces that rdma-core has had, by the number in their symbols' names, and which of them we serve.
// For the provider itself and for `etherwarp doctor`.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>
#include <string_view>

namespace ewarp::rdmav34 {

struct Release {
  int number;  // of IBVERBS_PRIVATE_<number>
  std::string_view releases;
  bool served;
};
// 59 stayed 59 while it grew by two operations, so a library of that number does not say which list it has.
inline constexpr Release kReleases[] = {
    {25, "rdma-core 24 to 35", false}, {34, "rdma-core 36 to 56", true}, {57, "rdma-core 57 and 58", false},
    {59, "rdma-core 59 to 63", false}, {64, "rdma-core 64", false},      {65, "rdma-core 65", true},
};

// A symbol of this libibverbs' private interface; null if it is not there.
inline void* private_symbol(void* library, const char* name, int number) {
  return dlvsym(library, name, fmt::format("IBVERBS_PRIVATE_{}", number).c_str());
}

// The name under which providers make themselves known.
inline std::string register_name(int number) {
  return fmt::format("verbs_register_driver_{}", number);
}

// Which interface an opened libibverbs has; null: none of these.
inline const Release* release_of(void* library) {
  for (const Release& r : kReleases)
    if (private_symbol(library, register_name(r.number).c_str(), r.number) != nullptr) return &r;
  return nullptr;
}

// "IBVERBS_PRIVATE_59 (rdma-core 59 to 63)"
inline std::string text_of(const Release* release) {
  return release == nullptr ? "none that is known"
                            : fmt::format("IBVERBS_PRIVATE_{} ({})", release->number, release->releases);
}

// All that we serve.
inline std::string served_text() {
  std::string out;
  for (const Release& r : kReleases)
    if (r.served) out += (out.empty() ? "" : " and ") + text_of(&r);
  return out;
}

}  // namespace ewarp::rdmav34
