// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Receives that the peers of an endpoint share. Each link has a few of its own and borrows the rest of its window here;
// when all are lent, it is told of a link that has more than it needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ewarp::channel {

class Link;

class ReceiveBudget {
 public:
  // A link of which nothing came while so many messages came from others has no use for what it borrowed.
  static constexpr std::uint32_t kIdle = 64;

  explicit ReceiveBudget(std::uint32_t receives) : free_(receives) {}

  // As many of them as there are; the link has that many more then.
  std::uint32_t borrow(Link& link, std::uint32_t most);
  // Requires: the link has borrowed them.
  void give_back(Link& link, std::uint32_t count);
  std::uint32_t free() const { return free_; }

  // Counts the messages of all links; wraps around.
  std::uint32_t tick() { return ++messages_; }
  bool idle(const Link& link) const;
  // Who is to give receives back so that `wants` may have a larger window: the link that was idle for longest, or one
  // that is busy with more than twice the window. Null if there is none that was not asked before.
  Link* lender(const Link& wants) const;

 private:
  std::uint32_t free_;
  std::uint32_t messages_ = 0;
  std::vector<Link*> borrowers_;
};

}  // namespace ewarp::channel
