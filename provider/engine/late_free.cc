// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/engine/late_free.h"

#include <dlfcn.h>

#include <cassert>
#include <cstdlib>
#include <new>
#include <utility>

namespace ewarp::verbs::late_free {
namespace {

// In the memory that waits: no block is smaller.
struct Waiting {
  Waiting* next;
};

struct Thread {
  unsigned engines = 0;
  Waiting* objects = nullptr;
  Waiting* arrays = nullptr;

  Waiting*& first(Kind kind) { return kind == Kind::array ? arrays : objects; }
};
constinit thread_local Thread thread;

using Delete = void (*)(void*);

// The process's own, which may be the application's. Ours is what this library's code calls (late_delete.cc), and all
// of a program that is linked with it.
Delete find(const char* name, Delete ours) {
  auto found = reinterpret_cast<Delete>(dlsym(RTLD_DEFAULT, name));
  if (found == nullptr || found == ours) found = reinterpret_cast<Delete>(dlsym(RTLD_NEXT, name));
  if (found == nullptr) std::abort();
  return found;
}

Delete next_delete(Kind kind) {
  static const struct {
    Delete object, array;
  } found{find("_ZdlPv", &::operator delete), find("_ZdaPv", &::operator delete[])};
  return kind == Kind::array ? found.array : found.object;
}
// Before a fork: a child may find the loader's lock taken.
[[gnu::constructor]] void find_early() {
  next_delete(Kind::object);
}

void free_waiting(Kind kind) {
  Waiting* w = std::exchange(thread.first(kind), nullptr);  // a hook may come back to us
  while (w != nullptr) next_delete(kind)(std::exchange(w, w->next));
}

}  // namespace

void begin() {
  ++thread.engines;
}

bool holds_engine() {
  return thread.engines > 0;
}

void end() {
  assert(thread.engines > 0);
  if (--thread.engines > 0) return;
  for (const Kind kind : {Kind::object, Kind::array})
    if (thread.first(kind) != nullptr) free_waiting(kind);
}

void free(void* memory, Kind kind) {
  if (thread.engines == 0 || memory == nullptr) return next_delete(kind)(memory);
  thread.first(kind) = new (memory) Waiting{thread.first(kind)};
}

void forget_in_child() {
  if (thread.engines == 0) return;
  thread.engines = 1;
  end();
}

}  // namespace ewarp::verbs::late_free
