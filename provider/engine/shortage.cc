// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/engine/shortage.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>

namespace ewarp::verbs::shortage {
namespace {

// A process that finds no memory for so long has no use for its connections either.
constexpr auto kPatience = std::chrono::seconds(10);
constexpr auto kPause = std::chrono::milliseconds(1);

constinit thread_local unsigned scopes = 0;

using New = void* (*)(std::size_t);

// The process's own, as in late_free.cc.
New find(const char* name, New ours) {
  auto found = reinterpret_cast<New>(dlsym(RTLD_DEFAULT, name));
  if (found == nullptr || found == ours) found = reinterpret_cast<New>(dlsym(RTLD_NEXT, name));
  if (found == nullptr) std::abort();
  return found;
}

New next_new(late_free::Kind kind) {
  static const struct { New object, array; } found{find("_Znwm", &::operator new), find("_Znam", &::operator new[])};
  return kind == late_free::Kind::array ? found.array : found.object;
}
// Before a fork: a child may find the loader's lock taken.
[[gnu::constructor]] void find_early() {
  next_new(late_free::Kind::object);
}

}  // namespace

Scope::Scope() {
  ++scopes;
}
Scope::~Scope() {
  --scopes;
}

void* allocate(std::size_t octets, late_free::Kind kind) {
  std::chrono::steady_clock::time_point until{};
  for (;;) {
    try {
      return next_new(kind)(octets);
    } catch (const std::bad_alloc&) {
      if (scopes == 0 && !late_free::holds_engine()) throw;
      const auto now = std::chrono::steady_clock::now();
      if (until == std::chrono::steady_clock::time_point{}) until = now + kPatience;
      if (now > until) throw;
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace ewarp::verbs::shortage
