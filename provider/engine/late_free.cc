// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/engine/late_free.h"

#include <cassert>
#include <new>
#include <utility>

#include "provider/engine/next_symbol.h"

namespace ewarp::verbs::late_free {
namespace {

// In the memory that waits.
struct Waiting {
  Waiting* next;
};
static_assert(sizeof(Waiting) == sizeof(void*));  // no block of ours is smaller: kSmallestBlock in shortage.cc
// In that of a known size, which has room for it.
struct Sized {
  Sized* next;
  std::size_t octets;
};

struct Blocks {
  Waiting* any = nullptr;
  Sized* sized = nullptr;
};

struct Thread {
  unsigned engines = 0;
  Blocks objects, arrays;

  Blocks& blocks(Kind kind) { return kind == Kind::array ? arrays : objects; }
};
constinit thread_local Thread thread;

using Delete = void (*)(void*);

Delete next_delete(Kind kind) {
  static const struct {
    Delete object, array;
  } found{next_symbol<Delete>("_ZdlPv", &::operator delete), next_symbol<Delete>("_ZdaPv", &::operator delete[])};
  return kind == Kind::array ? found.array : found.object;
}
// Before a fork: a child may find the loader's lock taken.
[[gnu::constructor]] void find_early() {
  next_delete(Kind::object);
}

void free_waiting(Kind kind) {
  Blocks b = std::exchange(thread.blocks(kind), {});  // a hook may come back to us
  while (b.any != nullptr) next_delete(kind)(std::exchange(b.any, b.any->next));
  while (b.sized != nullptr) next_delete(kind)(std::exchange(b.sized, b.sized->next));
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
  free_waiting(Kind::object);
  free_waiting(Kind::array);
}

void free(void* memory, Kind kind, std::size_t octets) {
  if (thread.engines == 0 || memory == nullptr) return next_delete(kind)(memory);
  Blocks& b = thread.blocks(kind);
  if (octets >= sizeof(Sized))
    b.sized = new (memory) Sized{b.sized, octets};
  else
    b.any = new (memory) Waiting{b.any};
}

void* take(std::size_t octets, Kind kind) {
  for (Sized** at = &thread.blocks(kind).sized; *at != nullptr; at = &(*at)->next)
    if ((*at)->octets >= octets) return std::exchange(*at, (*at)->next);
  return nullptr;
}

void forget_in_child() {
  if (thread.engines == 0) return;
  thread.engines = 1;
  end();
}

}  // namespace ewarp::verbs::late_free
