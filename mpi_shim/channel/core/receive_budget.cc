// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/core/receive_budget.h"

#include <algorithm>
#include <cassert>

#include "mpi_shim/channel/core/link.h"

namespace ewarp::channel {

std::uint32_t ReceiveBudget::borrow(Link& link, std::uint32_t most) {
  const std::uint32_t count = std::min(most, free_);
  if (count == 0) return 0;
  if (link.borrowed() == 0) borrowers_.push_back(&link);
  free_ -= count;
  return count;
}

void ReceiveBudget::give_back(Link& link, std::uint32_t count) {
  if (count == 0) return;
  assert(count <= link.borrowed());
  if (count == link.borrowed()) std::erase(borrowers_, &link);
  free_ += count;
}

bool ReceiveBudget::idle(const Link& link) const {
  return messages_ - link.used_at() >= kIdle;
}

Link* ReceiveBudget::lender(const Link& wants) const {
  Link* longest = nullptr;
  Link* widest = nullptr;
  for (Link* link : borrowers_) {
    if (link == &wants) continue;
    if (idle(*link)) {
      const bool longer = longest == nullptr || messages_ - link->used_at() > messages_ - longest->used_at();
      if (!link->asked_back() && longer) longest = link;
    } else if (!link->narrowing() && link->window() > 2 * wants.window() &&
               (widest == nullptr || link->window() > widest->window())) {
      widest = link;
    }
  }
  return longest != nullptr ? longest : widest;
}

}  // namespace ewarp::channel
