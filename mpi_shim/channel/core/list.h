// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Lists and hashed queues of objects that carry their own links: nothing is allocated per element.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "mpi_shim/channel/core/types.h"

namespace ewarp::channel {

template <class T>
struct Links {
  T* previous = nullptr;
  T* next = nullptr;
};

template <class T, Links<T> T::*kLinks>
class List {
 public:
  T* front() const { return first_; }
  static T* after(const T& item) { return (item.*kLinks).next; }
  bool empty() const { return first_ == nullptr; }

  void push_back(T& item) {
    item.*kLinks = {.previous = last_, .next = nullptr};
    (last_ != nullptr ? (last_->*kLinks).next : first_) = &item;
    last_ = &item;
  }
  // Requires: `before` is in this list.
  void insert_after(T& before, T& item) {
    T* const next = (before.*kLinks).next;
    item.*kLinks = {.previous = &before, .next = next};
    (before.*kLinks).next = &item;
    (next != nullptr ? (next->*kLinks).previous : last_) = &item;
  }
  // Requires: the item is in this list.
  void remove(T& item) {
    Links<T>& links = item.*kLinks;
    assert(links.previous != nullptr ? (links.previous->*kLinks).next == &item : first_ == &item);
    assert(links.next != nullptr ? (links.next->*kLinks).previous == &item : last_ == &item);
    (links.previous != nullptr ? (links.previous->*kLinks).next : first_) = links.next;
    (links.next != nullptr ? (links.next->*kLinks).previous : last_) = links.previous;
    links = {};
  }
  T* pop_front() {
    T* item = first_;
    if (item != nullptr) remove(*item);
    return item;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

// Items in buckets by the hash of their key; those of one key stay in order. Grows with what is in it.
template <class T, Links<T> T::*kLinks, class KeyOf>
class HashedQueue {
 public:
  using Key = decltype(KeyOf::key(std::declval<const T&>()));
  using Bucket = List<T, kLinks>;

  HashedQueue() : buckets_(kFewest) {}

  std::size_t size() const { return size_; }
  void push_back(T& item) {
    if (++size_ > 2 * buckets_.size()) grow();
    bucket(KeyOf::key(item)).push_back(item);
  }
  void remove(T& item) {
    assert(size_ > 0);
    bucket(KeyOf::key(item)).remove(item);
    --size_;
  }
  // The first with this key, or the next one with the key of `item`.
  T* first(const Key& key) const { return from(bucket(key).front(), key); }
  static T* next(const T& item) { return from(Bucket::after(item), KeyOf::key(item)); }

 private:
  static constexpr std::size_t kFewest = 64;  // a power of two, as all sizes are

  static T* from(T* item, const Key& key) {
    while (item != nullptr && !(KeyOf::key(*item) == key)) item = Bucket::after(*item);
    return item;
  }
  const Bucket& bucket(const Key& key) const { return buckets_[KeyOf::hash(key) & (buckets_.size() - 1)]; }
  Bucket& bucket(const Key& key) { return buckets_[KeyOf::hash(key) & (buckets_.size() - 1)]; }
  // Items of one key come out of one old bucket, so their order survives. Without memory the buckets become longer.
  void grow() {
    std::vector<Bucket> old;
    try {
      old.resize(buckets_.size() * 2);
    } catch (const std::bad_alloc&) {
      return;
    }
    old.swap(buckets_);
    for (Bucket& from : old)
      while (T* item = from.pop_front()) bucket(KeyOf::key(*item)).push_back(*item);
  }

  std::vector<Bucket> buckets_;
  std::size_t size_ = 0;
};

// Where a message comes from and how it is tagged: the key of most queues.
struct Envelope {
  PeerId source;
  Tag tag;
  bool operator==(const Envelope&) const = default;
};

// The finisher of MurmurHash3: neighbouring tags and peers land in buckets far from each other.
inline std::size_t hash_of(const Envelope& e) {
  std::uint64_t h = e.tag + 0x9e3779b97f4a7c15u * (std::uint64_t{e.source} + 1);
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdu;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53u;
  return static_cast<std::size_t>(h ^ (h >> 33));
}

}  // namespace ewarp::channel
