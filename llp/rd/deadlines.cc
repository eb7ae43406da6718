#include <utility>

#include "llp/rd_table.h"

namespace ewarp::llp::rd {

Slab::~Slab() {
  std::vector<bool> gone(used_);
  for (const std::uint32_t i : free_) gone[i] = true;
  for (std::uint32_t i = 0; i < used_; ++i)
    if (!gone[i]) std::destroy_at(&(*this)[i]);
}

std::uint32_t Slab::create(Shared& shared, const Key& key, std::uint16_t port) {
  std::uint32_t i;
  if (free_.empty()) {
    i = used_++;
    if (i / kBlock == blocks_.size()) blocks_.push_back(std::make_unique<Block>());
  } else {
    i = free_.back();
    free_.pop_back();
  }
  new (blocks_[i / kBlock]->raw[i % kBlock].data()) Association(shared, key, port);
  return i;
}

void Slab::destroy(std::uint32_t i) {
  std::destroy_at(&(*this)[i]);
  free_.push_back(i);
}

void Deadlines::place(std::uint32_t a, std::size_t i) {
  heap_[i] = a;
  slab_[a].heap_place_ = static_cast<std::uint32_t>(i);
}

void Deadlines::up(std::size_t i) {
  const std::uint32_t a = heap_[i];
  for (; i > 0 && slab_[a].deadline_ < at((i - 1) / 2).deadline_; i = (i - 1) / 2) place(heap_[(i - 1) / 2], i);
  place(a, i);
}

void Deadlines::down(std::size_t i) {
  const std::uint32_t a = heap_[i];
  for (;;) {
    std::size_t child = 2 * i + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && at(child + 1).deadline_ < at(child).deadline_) ++child;
    if (slab_[a].deadline_ <= at(child).deadline_) break;
    place(heap_[child], i);
    i = child;
  }
  place(a, i);
}

void Deadlines::insert(Association& a) {
  heap_.push_back(a.self_);
  up(heap_.size() - 1);
}

void Deadlines::remove(Association& a) {
  const std::size_t i = a.heap_place_;
  const std::uint32_t last = heap_.back();
  heap_.pop_back();
  if (last == a.self_) return;
  place(last, i);
  up(i);
  down(slab_[last].heap_place_);
}

void Deadlines::update(Association& a, Time deadline) {
  if (a.deadline_ == deadline) return;
  a.deadline_ = deadline;
  up(a.heap_place_);
  down(a.heap_place_);
}

}  // namespace ewarp::llp::rd
