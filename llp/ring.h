// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A FIFO in one array that only ever grows: once at its working size it never allocates again (std::deque does, in the
// middle of steady traffic).
#pragma once

#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

namespace ewarp::llp {

template <class T>
class Ring {
 public:
  explicit Ring(std::size_t capacity = 2) {
    std::size_t n = 1;
    while (n < capacity) n *= 2;
    items_.resize(n);
  }
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  T& front() { return at(0); }
  const T& front() const { return at(0); }
  T& back() { return at(size_ - 1); }
  // Position 0 is the front. Requires: i < size().
  T& at(std::size_t i) {
    assert(i < size_);
    return items_[(first_ + i) & (items_.size() - 1)];
  }
  const T& at(std::size_t i) const {
    assert(i < size_);
    return items_[(first_ + i) & (items_.size() - 1)];
  }
  void push_back(T item) {
    if (size_ == items_.size()) grow();
    items_[(first_ + size_++) & (items_.size() - 1)] = std::move(item);
  }
  void pop_front() {
    assert(size_ > 0);
    first_ = (first_ + 1) & (items_.size() - 1);
    --size_;
  }
  void clear() { first_ = size_ = 0; }

 private:
  void grow() {
    std::vector<T> bigger(items_.size() * 2);
    for (std::size_t i = 0; i < size_; ++i) bigger[i] = std::move(at(i));
    items_ = std::move(bigger);
    first_ = 0;
  }
  std::vector<T> items_;
  std::size_t first_ = 0, size_ = 0;
};

}  // namespace ewarp::llp
