#include <utility>

#include "llp/rd_table.h"

namespace ewarp::llp::rd {

void Deadlines::place(Association* a, std::size_t i) {
  heap_[i] = a;
  a->heap_index_ = static_cast<std::uint32_t>(i);
}

void Deadlines::up(std::size_t i) {
  Association* a = heap_[i];
  for (; i > 0 && a->deadline_ < heap_[(i - 1) / 2]->deadline_; i = (i - 1) / 2) place(heap_[(i - 1) / 2], i);
  place(a, i);
}

void Deadlines::down(std::size_t i) {
  Association* a = heap_[i];
  for (;;) {
    std::size_t child = 2 * i + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1]->deadline_ < heap_[child]->deadline_) ++child;
    if (a->deadline_ <= heap_[child]->deadline_) break;
    place(heap_[child], i);
    i = child;
  }
  place(a, i);
}

void Deadlines::insert(Association* a) {
  heap_.push_back(a);
  up(heap_.size() - 1);
}

void Deadlines::remove(Association* a) {
  const std::size_t i = a->heap_index_;
  Association* last = heap_.back();
  heap_.pop_back();
  if (last == a) return;
  place(last, i);
  up(i);
  down(last->heap_index_);
}

void Deadlines::update(Association* a, Time deadline) {
  if (a->deadline_ == deadline) return;
  a->deadline_ = deadline;
  up(a->heap_index_);
  down(a->heap_index_);
}

}  // namespace ewarp::llp::rd
