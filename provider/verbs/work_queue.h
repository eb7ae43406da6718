// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The rings that work requests wait in.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "llp/spinlock.h"

namespace ewarp::verbs {

struct Sge {
  std::uint64_t address;
  std::uint32_t length;
  std::uint32_t lkey;
};

struct ReceiveEntry {
  std::uint64_t wr_id;
  std::uint64_t length;  // octets that fit
  std::uint16_t sge_count;
};

// A ring of entries, each with room for `sges` scatter/gather elements or for `extra` octets of its own: an entry has
// the one or the other.
// Threading: one producer at a time (under the queue's lock), one consumer (the engine's holder). Positions only grow;
// tail_ is published by the producer, head_ by the consumer. Nobody but the producer is at an entry while there is none
// between them.
template <class Entry>
class WorkQueue {
 public:
  // False: no memory.
  bool create(std::uint32_t depth, std::uint32_t sges, std::uint32_t extra);
  std::uint32_t depth() const { return depth_; }
  std::uint32_t sges() const { return sges_; }
  std::uint32_t extra() const { return extra_; }
  Entry& entry(std::uint64_t position) { return *reinterpret_cast<Entry*>(place(position)); }
  Sge* sge(std::uint64_t position) { return reinterpret_cast<Sge*>(extra(position)); }
  std::byte* extra(std::uint64_t position) { return place(position) + kEntry; }
  // The same of an entry that is here.
  Sge* sge(const Entry& e) { return reinterpret_cast<Sge*>(extra(e)); }
  std::byte* extra(const Entry& e) { return octets_.get() + offset(e) + kEntry; }
  std::uint64_t position(const Entry& e) const;  // of an entry between head and tail

  std::uint64_t head() const { return head_.load(std::memory_order_acquire); }
  std::uint64_t tail() const { return tail_.load(std::memory_order_acquire); }
  bool full() const { return tail_.load(std::memory_order_relaxed) - head() >= depth_; }
  // An empty ring begins at its front again: of a deep one that is seldom full only as much is used, and stays in the
  // cache. Producer only.
  void rewind() {
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (head() == tail) front_.store(tail, std::memory_order_relaxed);
  }
  // seq_cst: the poster then looks at the state, the flusher at the tail; one of them sees the other.
  void publish(std::uint64_t tail) {
    assert(tail >= tail_.load(std::memory_order_relaxed) && tail - head() <= depth_);
    tail_.exchange(tail, std::memory_order_seq_cst);
  }
  void retire(std::uint64_t head) {
    assert(head >= head_.load(std::memory_order_relaxed) && head <= tail());
    const std::uint64_t front = front_.load(std::memory_order_relaxed);
    if (head - front >= depth_) front_.store(front + (head - front) / depth_ * depth_, std::memory_order_relaxed);
    head_.store(head, std::memory_order_release);
  }
  // What is queued moves to a ring of another depth. False: no memory, or it does not fit; nothing has changed then.
  // Requires: neither producer nor consumer at work.
  bool resize(std::uint32_t depth);
  llp::Spinlock lock;  // producers

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  using Octets = std::unique_ptr<std::byte[], Free>;
  // Not initialised: the pages come with use.
  static Octets allocate(std::size_t octets) { return Octets(static_cast<std::byte*>(std::malloc(octets))); }
  static_assert(std::is_trivially_copyable_v<Entry> && alignof(Entry) <= alignof(Sge));
  // The room of an entry begins so many octets behind it.
  static constexpr std::size_t kEntry = (sizeof(Entry) + alignof(Sge) - 1) / alignof(Sge) * alignof(Sge);
  std::uint32_t offset(const Entry& e) const {
    return static_cast<std::uint32_t>(reinterpret_cast<const std::byte*>(&e) - octets_.get());
  }
  std::byte* place(std::uint64_t position) {
    const std::uint64_t index = position - front_.load(std::memory_order_relaxed);
    assert(index < 2 * std::uint64_t{depth_});
    return octets_.get() + (index < depth_ ? index : index - depth_) * stride_;
  }

  std::uint32_t depth_ = 0, sges_ = 0, extra_ = 0;
  std::uint32_t stride_ = 0;  // octets of an entry with its room
  // The position at the front of the ring, of the lap that head_ is in; it moves before head_ does. Who has seen an
  // older head_ only may have the one before: the places are the same.
  std::atomic<std::uint64_t> front_{0};
  Octets octets_;
  std::atomic<std::uint64_t> head_{0}, tail_{0};
};

template <class Entry>
bool WorkQueue<Entry>::create(std::uint32_t depth, std::uint32_t sges, std::uint32_t extra) {
  depth_ = std::max(depth, 1u);
  sges_ = std::max(sges, 1u);
  extra_ = extra;
  const std::size_t room = std::max(sges_ * sizeof(Sge), std::size_t{extra});
  stride_ = static_cast<std::uint32_t>(kEntry + (room + alignof(Sge) - 1) / alignof(Sge) * alignof(Sge));
  assert(std::uint64_t{depth_} * stride_ <= UINT32_MAX);
  octets_ = allocate(std::size_t{depth_} * stride_);
  return octets_ != nullptr;
}

template <class Entry>
std::uint64_t WorkQueue<Entry>::position(const Entry& e) const {
  const std::uint64_t index = offset(e) / stride_;
  assert(offset(e) % stride_ == 0 && index < depth_);
  const std::uint64_t position = front_.load(std::memory_order_relaxed) + index;
  return position >= head_.load(std::memory_order_relaxed) ? position : position + depth_;
}

template <class Entry>
bool WorkQueue<Entry>::resize(std::uint32_t depth) {
  depth = std::max(depth, 1u);
  Octets octets = allocate(std::size_t{depth} * stride_);
  if (tail() - head() > depth || octets == nullptr) return false;
  for (std::uint64_t at = head(); at < tail(); ++at)
    std::memcpy(octets.get() + static_cast<std::size_t>(at - head()) * stride_, place(at), stride_);
  octets_ = std::move(octets);
  front_.store(head(), std::memory_order_relaxed);
  depth_ = depth;
  return true;
}

// The pieces of memory of a request to be sent, or with IBV_SEND_INLINE their octets, whose keys and addresses do not
// matter from now on. How many pieces are kept. Requires: room for them.
template <class Entry>
std::uint16_t put_pieces(WorkQueue<Entry>& queue, std::uint64_t position, const ibv_send_wr& wr) {
  const bool is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  assert(is_inline || static_cast<std::uint32_t>(wr.num_sge) <= queue.sges());
  std::byte* at = queue.extra(position);
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& s = wr.sg_list[i];
    if (!is_inline) {
      queue.sge(position)[i] = Sge{s.addr, s.length, s.lkey};
    } else if (s.length > 0) {  // else its address may be null
      std::memcpy(at, reinterpret_cast<const void*>(s.addr), s.length);
      at += s.length;
      assert(at <= queue.extra(position) + queue.extra());
    }
  }
  return is_inline ? std::uint16_t{0} : static_cast<std::uint16_t>(wr.num_sge);
}

// A list of sends, up to where the tail is to go: 0, or the errno with which put(request, position) refused *bad.
// whole: then nothing is posted, else what comes before it. Nobody sees them before the tail is published. Requires:
// the queue's lock.
struct PlacedSends {
  int rc;
  std::uint64_t tail;
};
template <class Entry, class Put>
PlacedSends place_sends(WorkQueue<Entry>& queue, bool whole, ibv_send_wr* wr, ibv_send_wr** bad, Put put)
    EWARP_REQUIRES(queue.lock) {
  queue.rewind();
  const std::uint64_t before = queue.tail();
  for (std::uint64_t tail = before;; wr = wr->next, ++tail) {
    if (wr == nullptr) return {0, tail};
    const int rc = put(*wr, tail);
    if (rc == 0) continue;
    *bad = wr;
    return {rc, whole ? before : tail};
  }
}

// place_sends(), and they are seen.
template <class Entry, class Put>
int put_sends(WorkQueue<Entry>& queue, bool whole, ibv_send_wr* wr, ibv_send_wr** bad, Put put)
    EWARP_REQUIRES(queue.lock) {
  const PlacedSends placed = place_sends(queue, whole, wr, bad, put);
  queue.publish(placed.tail);
  return placed.rc;
}

// ibv_post_recv() and ibv_post_srq_recv(): 0 or errno; *bad is the first request that was not taken. Requires: its
// lock. allowed: whether the state of its owner permits it. max_sge: what its owner promised.
inline int put_receives(WorkQueue<ReceiveEntry>& queue, bool allowed, std::uint32_t max_sge, ibv_recv_wr* wr,
                        ibv_recv_wr** bad) EWARP_REQUIRES(queue.lock) {
  int rc = 0;
  std::uint64_t tail = queue.tail();
  for (; wr != nullptr; wr = wr->next) {
    if (!allowed || wr->num_sge < 0 || static_cast<std::uint32_t>(wr->num_sge) > max_sge)
      rc = EINVAL;
    else if (tail - queue.head() >= queue.depth())
      rc = ENOMEM;
    if (rc != 0) {
      *bad = wr;
      break;
    }
    ReceiveEntry& e = queue.entry(tail);
    Sge* sges = queue.sge(tail);
    e.wr_id = wr->wr_id;
    e.length = 0;
    e.sge_count = static_cast<std::uint16_t>(wr->num_sge);
    for (int i = 0; i < wr->num_sge; ++i) {
      sges[i] = Sge{wr->sg_list[i].addr, wr->sg_list[i].length, wr->sg_list[i].lkey};
      e.length += wr->sg_list[i].length;
    }
    ++tail;
  }
  queue.publish(tail);
  return rc;
}

}  // namespace ewarp::verbs
