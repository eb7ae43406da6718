// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Null regions (ibv_alloc_null_mr(3)): an lkey for octets that nobody wants.
#include <errno.h>
#include <sys/mman.h>

#include "provider/verbs/device/device.h"
#include "provider/verbs/memory/memory.h"

namespace ewarp::verbs {
namespace {

// As much as one work request can name, in pages that are all the kernel's one page of zeros until they are written.
// What is written goes to the first of them, as far as the segments of messages are long.
std::byte* map(int protection) {
  void* at = mmap(nullptr, kMaxMessage, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

}  // namespace

std::byte* MemoryTable::null_memory(bool written) {
  static std::byte* const source = map(PROT_READ);
  static std::byte* const sink = map(PROT_READ | PROT_WRITE);
  return written ? sink : source;
}

int MemoryTable::add_null(Pd& pd, MemoryRegion** out) {
  if (null_memory(false) == nullptr || null_memory(true) == nullptr) return ENOMEM;
  MemoryRegion* r = take_slot();
  if (r == nullptr) return ENOMEM;
  r->kind_ = MemoryRegion::Kind::null;
  set(*r, pd, nullptr, SIZE_MAX, 0, IBV_ACCESS_LOCAL_WRITE);
  pd.users.fetch_add(1);
  *out = r;
  return 0;
}

}  // namespace ewarp::verbs
