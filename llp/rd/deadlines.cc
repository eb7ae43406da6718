// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cassert>
#include <utility>

#include "llp/rd/table.h"

namespace ewarp::llp::rd {

Slab::~Slab() {
  std::vector<bool> gone(used_);
  for (const std::uint32_t i : free_) gone[i] = true;
  for (std::uint32_t i = 0; i < used_; ++i)
    if (!gone[i]) std::destroy_at(&(*this)[i]);
}

std::uint32_t Slab::create(Shared& shared, const Key& key, std::uint16_t port) {
  const bool fresh = free_.empty();
  if (fresh && used_ / kBlock == blocks_.size()) blocks_.push_back(std::make_unique<Block>());
  const std::uint32_t i = fresh ? used_ : free_.back();
  new (blocks_[i / kBlock]->raw[i % kBlock].data()) Association(shared, key, port);
  if (fresh)
    ++used_;
  else
    free_.pop_back();
  return i;
}

void Slab::destroy(std::uint32_t i) {
  assert(i < used_ && size() > 0);
  std::destroy_at(&(*this)[i]);
  free_.push_back(i);
}

void Deadlines::place(std::uint32_t a, std::size_t i) {
  heap_[i] = a;
  slab_[a].place_.in_heap = static_cast<std::uint32_t>(i);
}

void Deadlines::up(std::size_t i) {
  const std::uint32_t a = heap_[i];
  for (; i > 0 && slab_[a].place_.deadline < at((i - 1) / 2).place_.deadline; i = (i - 1) / 2)
    place(heap_[(i - 1) / 2], i);
  place(a, i);
}

void Deadlines::down(std::size_t i) {
  const std::uint32_t a = heap_[i];
  for (;;) {
    std::size_t child = 2 * i + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && at(child + 1).place_.deadline < at(child).place_.deadline) ++child;
    if (slab_[a].place_.deadline <= at(child).place_.deadline) break;
    place(heap_[child], i);
    i = child;
  }
  place(a, i);
}

void Deadlines::make_room() {
  if (heap_.size() == heap_.capacity()) heap_.reserve(2 * heap_.size() + 1);
}

void Deadlines::insert(Association& a) {
  heap_.push_back(a.place_.self);
  up(heap_.size() - 1);
}

void Deadlines::remove(Association& a) {
  const std::size_t i = a.place_.in_heap;
  assert(i < heap_.size() && heap_[i] == a.place_.self);
  const std::uint32_t last = heap_.back();
  heap_.pop_back();
  if (last == a.place_.self) return;
  place(last, i);
  up(i);
  down(slab_[last].place_.in_heap);
}

void Deadlines::update(Association& a, Time deadline) {
  assert(heap_[a.place_.in_heap] == a.place_.self);
  if (a.place_.deadline == deadline) return;
  a.place_.deadline = deadline;
  up(a.place_.in_heap);
  down(a.place_.in_heap);
}

}  // namespace ewarp::llp::rd
