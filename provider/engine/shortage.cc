// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/engine/shortage.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <new>

#include "provider/engine/next_symbol.h"

namespace ewarp::verbs::shortage {
namespace {

// A process that finds no memory for so long has no use for its connections either.
constexpr auto kPatience = std::chrono::seconds(10);
constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1'000'000};

// Octets: memory that waits to be freed holds a pointer to the next (late_free.cc), and the process's own operator new
// may keep to the octet what it is asked for.
constexpr std::size_t kSmallestBlock = sizeof(void*);

constinit thread_local unsigned scopes = 0;
constinit thread_local bool in_vain = false;  // this thread has waited in vain, and has got nothing since

using New = void* (*)(std::size_t);

New next_new(late_free::Kind kind) {
  static const struct {
    New object, array;
  } found{next_symbol<New>("_Znwm", &::operator new), next_symbol<New>("_Znam", &::operator new[])};
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
      void* const memory = next_new(kind)(std::max(octets, kSmallestBlock));
      in_vain = false;
      return memory;
    } catch (const std::bad_alloc&) {
      // What the holder has freed itself has not gone back yet, and will not while it waits here.
      if (void* const memory = late_free::take(octets, kind); memory != nullptr) return memory;
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
