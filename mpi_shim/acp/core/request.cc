// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/core/request.h"

#include <cstdlib>
#include <new>

namespace ewarp::acp {

RequestPool::RequestPool(std::uint32_t count)
    : all_(static_cast<Request*>(std::calloc(count, sizeof(Request)))), count_(count) {
  if (all_ == nullptr) throw std::bad_alloc();
}

RequestPool::~RequestPool() {
  std::free(all_);
}

Request* RequestPool::take(Kind kind, void* buffer, std::size_t octets) {
  Request* r = free_;
  if (r != nullptr)
    free_ = r->next;
  else if (touched_ < count_)
    r = &all_[touched_++];
  else
    return nullptr;
  const std::uint32_t generation = r->generation + 1;
  *r = Request{.buffer = static_cast<std::byte*>(buffer),
               .size = static_cast<std::uint32_t>(octets),
               .generation = generation,
               .kind = kind};
  ++in_use_;
  return r;
}

void RequestPool::give_back(Request& r) {
  r.kind = Kind::none;
  r.next = free_;
  free_ = &r;
  --in_use_;
}

std::uint64_t RequestPool::handle(const Request& r) const {
  return std::uint64_t{r.generation} << 32 | static_cast<std::uint64_t>(&r - all_ + 1);
}

Request* RequestPool::find(std::uint64_t handle) const {
  const std::uint32_t place = static_cast<std::uint32_t>(handle);
  if (place == 0 || place > touched_) return nullptr;
  Request& r = all_[place - 1];
  return r.kind != Kind::none && r.generation == handle >> 32 ? &r : nullptr;
}

}  // namespace ewarp::acp
