// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/engine/shortage.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <new>

namespace ewarp::verbs::shortage {
namespace {

// A process that finds no memory for so long has no use for its connections either.
constexpr auto kPatience = std::chrono::seconds(10);
constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1'000'000};

constinit thread_local unsigned scopes = 0;
constinit thread_local bool in_vain = false;  // this thread has waited in vain, and has got nothing since

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
      void* const memory = next_new(kind)(octets);
      in_vain = false;
      return memory;
    } catch (const std::bad_alloc&) {
      if (in_vain || (scopes == 0 && !late_free::holds_engine())) throw;
      const auto now = std::chrono::steady_clock::now();
      if (until == std::chrono::steady_clock::time_point{}) until = now + kPatience;
      if (now > until) {
        in_vain = true;
        throw;
      }
    }
    syscall(SYS_nanosleep, &kPause, nullptr);  // nanosleep() is a cancellation point
  }
}

}  // namespace ewarp::verbs::shortage
