// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/core/crb.h"

#include <atomic>

namespace ewarp::acp {

ConnectRequests::~ConnectRequests() {
  while (first_ != nullptr) drop(&first_);
}

bool ConnectRequests::take(std::uint32_t entry) {
  if (entry >= kEntries) return false;
  const ConnectRequest request = ring_[entry];
  if (request.owner != std::uint64_t{request.rank} + 1 || find(request.rank) != nullptr) return false;
  first_ = new Kept{request, first_};
  ++kept_;
  release(entry);
  return true;
}

// Pairs with the claim of a peer, which is an atomic of the adapter's.
void ConnectRequests::release(std::uint32_t entry) {
  std::atomic_ref<std::uint64_t>(ring_[entry].owner).store(0, std::memory_order_release);
}

ConnectRequests::Kept** ConnectRequests::find(std::uint32_t rank) {
  for (Kept** at = &first_; *at != nullptr; at = &(*at)->next)
    if ((*at)->request.rank == rank) return at;
  return nullptr;
}

void ConnectRequests::drop(Kept** at) {
  Kept* gone = *at;
  *at = gone->next;
  delete gone;
  --kept_;
}

std::optional<ConnectRequest> ConnectRequests::match(std::uint32_t rank) {
  Kept** at = find(rank);
  if (at == nullptr) return std::nullopt;
  const ConnectRequest request = (*at)->request;
  drop(at);
  return request;
}

void ConnectRequests::forget(std::uint32_t rank) {
  if (Kept** at = find(rank)) drop(at);
  for (std::uint32_t i = 0; i < kEntries; ++i)
    if (std::atomic_ref<std::uint64_t>(ring_[i].owner).load(std::memory_order_acquire) == std::uint64_t{rank} + 1)
      release(i);
}

}  // namespace ewarp::acp
