// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The buffers that the application has registered.
#pragma once

#include <cassert>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "mpi_shim/gravel/core/types.h"

namespace ewarp::gravel {

class Buffers {
 public:
  // The slot of a buffer that is registered by this key.
  std::uint32_t add(MutableOctets memory, std::uint32_t key) {
    if (free_.empty()) {
      if (free_.capacity() <= slots_.size()) free_.reserve(2 * slots_.size() + 1);  // what is removed needs no memory
      slots_.emplace_back();
      free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));  // without memory nobody has the slot
    }
    const std::uint32_t slot = free_.back();
    by_begin_.emplace(memory.data(), slot);
    free_.pop_back();
    slots_[slot] = {.memory = memory, .key = key};
    return slot;
  }
  // These octets of a buffer that has all of them; nothing if there is none. Memory of no octets needs no buffer.
  std::optional<Local> find(const void* data, std::size_t size) {
    std::byte* const at = static_cast<std::byte*>(const_cast<void*>(data));
    if (size == 0) return Local{.data = at, .slot = kNone};
    for (auto it = by_begin_.upper_bound(at); it != by_begin_.begin();) {
      const Slot& s = slots_[(--it)->second];
      const auto before = static_cast<std::size_t>(at - s.memory.data());
      if (before <= s.memory.size() && size <= s.memory.size() - before)
        return Local{.data = at, .size = size, .key = s.key, .slot = it->second};
    }
    return std::nullopt;
  }
  // The slot of a buffer that was registered so, with the fewest users; nothing if there is none.
  std::optional<std::uint32_t> find_whole(const void* data, std::size_t size) const {
    std::optional<std::uint32_t> best;
    const auto [from, to] = by_begin_.equal_range(static_cast<std::byte*>(const_cast<void*>(data)));
    for (auto it = from; it != to; ++it)
      if (slots_[it->second].memory.size() == size && (!best || users(it->second) < users(*best))) best = it->second;
    return best;
  }
  // Requires: no users.
  void remove(std::uint32_t slot) {
    assert(users(slot) == 0);
    const auto [from, to] = by_begin_.equal_range(slots_[slot].memory.data());
    for (auto it = from; it != to; ++it) {
      if (it->second != slot) continue;
      by_begin_.erase(it);
      break;
    }
    slots_[slot] = {};
    free_.push_back(slot);
  }
  // add() gives a lower one, or this.
  std::size_t slots() const { return slots_.size(); }
  // Requests and transfers that are not done.
  std::size_t users(std::uint32_t slot) const { return slots_[slot].users; }
  void use(const Local& part) {
    if (part.slot != kNone) ++slots_[part.slot].users;
  }
  void leave(std::uint32_t slot) {
    if (slot == kNone) return;
    assert(slots_[slot].users > 0);
    --slots_[slot].users;
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct Slot {
    MutableOctets memory;
    std::uint32_t key = 0;
    std::size_t users = 0;
  };

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::multimap<std::byte*, std::uint32_t> by_begin_;
};

}  // namespace ewarp::gravel
