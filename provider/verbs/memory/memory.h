// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory regions: the table that every access of a peer, and every local SGE, goes through (RFC 5041 section 7.1,
// RFC 5042 section 6).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "ddp/access.h"
#include "llp/gather.h"
#include "llp/spinlock.h"
#include "provider/verbs/device/context.h"
#include "rdmap/header.h"

namespace ewarp::verbs {

using ddp::Verdict;

// A registered region. Slots are never given back to the allocator, so a stale pointer to one stays readable; what it
// says is protected by `users` and `ticket`.
// Threading: a reader enters (users + 1, then looks at ticket), uses, leaves; deregistration clears the key in ticket,
// then waits for users to become 0. All of these are seq_cst.
class MemoryRegion {
 public:
  std::uint32_t stag() const { return key_of(ticket_.load(std::memory_order_relaxed)); }  // lkey = rkey; 0: not valid
  std::byte* address() const { return address_; }
  std::size_t length() const { return length_; }

 private:
  friend class MemoryTable;
  static constexpr std::uint32_t key_of(std::uint64_t ticket) { return static_cast<std::uint32_t>(ticket); }
  static constexpr std::uint64_t without_key(std::uint64_t ticket) { return ticket >> 32 << 32; }
  // Requires: no key opens it, nobody is inside, and nobody else gives it a key.
  void open(std::uint32_t key) {
    const std::uint64_t before = ticket_.load(std::memory_order_relaxed);
    assert(key != 0 && key_of(before) == 0);
    ticket_.store(((before >> 32) + 1) << 32 | key, std::memory_order_seq_cst);
  }
  void close() { ticket_.fetch_and(without_key(~std::uint64_t{0}), std::memory_order_seq_cst); }

  // Low half: the key, 0 while none opens it. High half: how many keys the slot has had. Whole, it is the ticket of an
  // Extent: a key may come back (of a window 8 bits change, and its owner chooses them), a ticket does not.
  std::atomic<std::uint64_t> ticket_{0};
  std::atomic<std::uint32_t> users_{0};
  unsigned access_ = 0;  // ibv_access_flags
  // As numbers: a region of all memory begins at null.
  std::byte* at(std::uint64_t address) const {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(address_) + (address - base_));
  }

  std::byte* address_ = nullptr;  // first octet in this process
  std::uint64_t base_ = 0;        // what the peer calls it (iova; 0 when zero-based)
  std::uint64_t length_ = 0;
  Pd* pd_ = nullptr;
  std::uint32_t place_ = 0;  // the bits of its index that say where it stands (slots.cc)
  std::uint32_t last_ = 0;   // the key that it has, or had last; of a window, the index stays
  MemoryRegion* next_free_ = nullptr;
  // Windows (under the table's window lock).
  enum class Kind : std::uint8_t { region, window_1, window_2, null };
  Kind kind_ = Kind::region;
  std::uint32_t qp_ = 0;               // type 2, bound: the QP whose peer may use it
  std::uint32_t windows_ = 0;          // of a region: how many are bound to it
  MemoryRegion* window_of_ = nullptr;  // of a window that is bound: its region
};

// What a bind asks for.
struct WindowBind {
  std::uint32_t rkey;  // the window, and the key that it gets
  std::uint32_t lkey;  // the region
  std::uint64_t address, length;
  unsigned access;
};

// What may be taken away by a key alone.
enum class Invalidates : std::uint8_t { windows, regions_too };

// The rules for access flags (ibv_reg_mr(3)): 0 or EINVAL.
int check_access(unsigned access);

// Whether IBV_ACCESS_ON_DEMAND can be had. Nothing is pinned in any case; with it nothing is looked at when memory is
// registered either, so a region may cover what is not mapped yet, or all there is (address 0, length SIZE_MAX).
bool on_demand_paging();

class MemoryTable final : public llp::MemoryGate {
 public:
  static constexpr std::uint32_t kMaxRegions = 1u << 20;

  MemoryTable();

  // ibv_reg_mr() and kin. Returns 0 or a positive errno: EINVAL (rights that need LOCAL_WRITE, unknown flags, range
  // that wraps), EFAULT (range not mapped, or read-only where writing is asked for), ENOMEM (table full), EOPNOTSUPP
  // (no on-demand paging).
  // iova: the address that peers use for the first octet (0 with IBV_ACCESS_ZERO_BASED).
  int add(Pd& pd, void* address, std::size_t length, std::uint64_t iova, unsigned access, MemoryRegion** out);
  // ibv_alloc_null_mr() (null.cc): every local read of it gives zeros, what is written to it is dropped; nothing
  // for peers. 0 or ENOMEM.
  int add_null(Pd& pd, MemoryRegion** out);
  // ibv_dereg_mr(). After return nothing touches the memory any more. Waits for copies and system calls in progress
  // (they do not block), never for the engine. 0, or EBUSY while a window is bound to it.
  int remove(MemoryRegion* region);
  // ibv_rereg_mr(): flags are IBV_REREG_MR_*. The STag changes. On failure the region is unchanged. 0 or errno (EBUSY
  // while a window is bound to it).
  int change(MemoryRegion* region, int flags, Pd* pd, void* address, std::size_t length, unsigned access);
  // ibv_advise_mr() for one element: memory of an on-demand region is brought in at once (now) or soon. 0, EINVAL (no
  // memory on demand), EFAULT (beyond its bounds, without the right to write, not mapped).
  int prefetch(const Pd& pd, std::uint32_t lkey, std::uint64_t address, std::uint64_t length, bool writable, bool now);
  // A peer's Send with Invalidate, or the owner's own request. A window of type 2 that is bound for this QP is unbound;
  // one of type 1 cannot be invalidated. An ordinary region is for every QP of its PD, so that no single peer may take
  // it away, unless the owner wishes it so (`what`; option invalidate_regions): then it stays allocated and no key
  // opens it any more. `access`: such a region, or one that a window is bound to.
  Verdict invalidate(std::uint32_t stag, const Pd& pd, std::uint32_t qp, Invalidates what);

  // --- memory windows (window.cc) ---

  // ibv_alloc_mw(): bound to nothing. rkey: its first key, to be changed in the low 8 bits. 0 or ENOMEM.
  int add_window(Pd& pd, ibv_mw_type type, MemoryRegion** out, std::uint32_t* rkey);
  void remove_window(MemoryRegion* window);
  // Executes a bind of this QP. False: refused, nothing has changed.
  bool bind(const WindowBind& request, const Pd& pd, std::uint32_t qp);

  // --- use ---

  // Checks [address, address + length) against the region that stag names, for a QP of this PD, with all the rights
  // in `need` (0: local read). ok: *out is the memory. Requires length > 0. qp: for a peer's access, whose peer it is.
  Verdict resolve(std::uint32_t stag, const Pd& pd, std::uint64_t address, std::uint64_t length, unsigned need,
                  llp::Extent* out, std::uint32_t qp = 0);

  // Around fork(), in the thread that calls it. In the child nobody is in a region: who was, is in the parent.
  void before_fork() EWARP_ACQUIRE(window_lock_, lock_);
  void after_fork_parent() EWARP_RELEASE(window_lock_, lock_);
  void after_fork_child() EWARP_RELEASE(window_lock_, lock_);

  bool enter(void* region, std::uint64_t ticket) override;
  void leave(void* region) override;

 private:
  // Slots stand in chunks that double, so that few bits of an index are spent where there are few regions.
  static constexpr unsigned kFirstBits = 12, kChunks = 9;
  static constexpr std::uint32_t size_of(unsigned chunk) { return 1u << (kFirstBits + chunk - (chunk > 0 ? 1 : 0)); }
  static constexpr unsigned chunk_of(std::uint32_t slot) {
    return static_cast<unsigned>(std::bit_width(slot >> kFirstBits));
  }
  // Free slots that one is drawn from, and how many rest at least before they can be drawn again.
  static constexpr std::uint32_t kPool = 1024, kResting = 2048;

  MemoryRegion* find(std::uint32_t stag) const;
  MemoryRegion* enter_by_key(std::uint32_t stag, std::uint64_t* ticket);
  void set(MemoryRegion& region, Pd& pd, void* address, std::size_t length, std::uint64_t iova, unsigned access);
  bool close(MemoryRegion& region);
  bool shut(MemoryRegion& region, std::uint64_t ticket);
  static void wait_for_users(const MemoryRegion& region);
  static std::byte* null_memory(bool written);
  void unbind(MemoryRegion& window) EWARP_REQUIRES(window_lock_);

  // slots.cc
  MemoryRegion& slot(std::uint32_t number) const;
  MemoryRegion* take_slot();
  void give_slot(MemoryRegion* region);
  void refill() EWARP_REQUIRES(lock_);
  bool grow(unsigned chunk);
  static std::uint32_t new_key(const MemoryRegion& region);

  llp::Spinlock lock_;         // free slots and growth
  llp::Spinlock window_lock_;  // which window is bound to which region; never asked for by who has lock_
  std::array<std::atomic<MemoryRegion*>, kChunks> chunks_{};
  std::uint32_t slots_ EWARP_GUARDED_BY(lock_) = 0;  // that were in use at least once
  std::array<MemoryRegion*, kPool> pool_ EWARP_GUARDED_BY(lock_){};
  std::uint32_t pooled_ EWARP_GUARDED_BY(lock_) = 0;
  // FIFO: a slot that went out of use stays so for long.
  MemoryRegion* free_first_ EWARP_GUARDED_BY(lock_) = nullptr;
  MemoryRegion* free_last_ EWARP_GUARDED_BY(lock_) = nullptr;
  std::uint32_t resting_ EWARP_GUARDED_BY(lock_) = 0;
};

MemoryTable& memory();

// Copies that respect deregistration and survive unmapped pages. False: nothing (more) may be touched.
bool copy_in(const llp::Extent& to, const void* from);
bool copy_out(void* to, const llp::Extent& from);
// Executes the request on 8 aligned octets by atomic instructions, so also with respect to this machine's own programs.
bool atomic(const llp::Extent& target, const rdmap::AtomicRequest& request, std::uint64_t* original);
// Whether all pages of the extent can be read now.
bool readable(const llp::Extent& extent);
// For reading in place, guarded: false when it is no longer registered. While held it stays so.
bool hold(const llp::Extent& extent);
void let_go(const llp::Extent& extent);

}  // namespace ewarp::verbs
