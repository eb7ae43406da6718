// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/memory/memory.h"

#include <errno.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cassert>

#include "llp/guarded_copy.h"
#include "llp/mutex.h"
#include "provider/verbs/memory/pages.h"

namespace ewarp::verbs {
namespace {

constexpr unsigned kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_HUGETLB | IBV_ACCESS_ON_DEMAND;
constexpr unsigned kOptionalAccess = IBV_ACCESS_OPTIONAL_RANGE;
// A right that every region has and no window: windows are for peers only.
constexpr unsigned kLocalRead = 1u << 31;

}  // namespace

bool on_demand_paging() {
  return llp::faults_can_be_caught();
}

int check_access(unsigned access) {
  if ((access & ~(kKnownAccess | kOptionalAccess)) != 0) return EINVAL;
  if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0)
    return EINVAL;
  return 0;
}

// Memory on demand is looked at when it is used, for which faults must be caught.
int check_memory(const void* address, std::size_t length, unsigned access) {
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  if (length > 0 && start > UINTPTR_MAX - (length - 1)) return EINVAL;
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) return on_demand_paging() && llp::install_copy_guard() ? 0 : EOPNOTSUPP;
  return length == 0 || mapped(address, length, (access & IBV_ACCESS_LOCAL_WRITE) != 0) ? 0 : EFAULT;
}

// An index names its chunk in front and its slot at the end; the bits between are drawn anew for each key (slots.cc).
MemoryRegion* MemoryTable::find(std::uint32_t stag) const {
  const std::uint32_t index = stag >> 8;
  const unsigned chunk = (index & 0x800000) == 0 ? 0 : 1 + (index >> 20 & 7);
  MemoryRegion* regions = chunks_[chunk].load(std::memory_order_acquire);  // pairs with grow()
  return regions == nullptr ? nullptr : regions + (index & (size_of(chunk) - 1));
}

// Requires: no key opens it, and nobody is inside.
void MemoryTable::set(MemoryRegion& r, Pd& pd, void* address, std::size_t length, std::uint64_t iova, unsigned access) {
  assert(r.stag() == 0);
  r.address_ = static_cast<std::byte*>(address);
  r.base_ = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
  r.length_ = length;
  r.access_ = access | kLocalRead;
  r.pd_ = &pd;
  r.last_ = new_key(r);
  r.open(r.last_);
}

int MemoryTable::add(Pd& pd, void* address, std::size_t length, std::uint64_t iova, unsigned access,
                     MemoryRegion** out) {
  if (const int rc = check_access(access)) return rc;
  if (length > 0 && iova > UINT64_MAX - (length - 1)) return EINVAL;
  if (const int rc = check_memory(address, length, access)) return rc;
  MemoryRegion* r = take_slot();
  if (r == nullptr) return ENOMEM;
  set(*r, pd, address, length, iova, access);
  pd.users.fetch_add(1);
  *out = r;
  return 0;
}

// No key opens the region from here on, and nobody is in it. False: a window is bound to it.
bool MemoryTable::close(MemoryRegion& r) {
  {
    const llp::Guard guard(window_lock_);
    if (r.windows_ != 0) return false;
    r.close();
  }
  wait_for_users(r);
  return true;
}

void MemoryTable::wait_for_users(const MemoryRegion& r) {
  for (llp::Backoff backoff; r.users_.load(std::memory_order_seq_cst) != 0;) backoff.wait();
}

int MemoryTable::remove(MemoryRegion* r) {
  if (!close(*r)) return EBUSY;
  if (r->kind_ == MemoryRegion::Kind::null) r->kind_ = MemoryRegion::Kind::region;
  r->pd_->users.fetch_sub(1);
  give_slot(r);
  return 0;
}

int MemoryTable::change(MemoryRegion* r, int flags, Pd* pd, void* address, std::size_t length, unsigned access) {
  constexpr int kKnown = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  if (flags == 0 || (flags & ~kKnown) != 0 || r->kind_ == MemoryRegion::Kind::null) return EINVAL;
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const unsigned rights = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? access : (r->access_ & ~kLocalRead);
  Pd* owner = (flags & IBV_REREG_MR_CHANGE_PD) != 0 ? pd : r->pd_;
  void* at = moves ? address : r->address_;
  const std::size_t size = moves ? length : r->length_;
  const std::uint64_t iova = moves ? reinterpret_cast<std::uintptr_t>(address) : r->base_;
  if (owner == nullptr) return EINVAL;
  if (const int rc = check_access(rights)) return rc;
  if (const int rc = check_memory(at, size, rights)) return rc;
  if (!close(*r)) return EBUSY;
  if (owner != r->pd_) {
    owner->users.fetch_add(1);
    r->pd_->users.fetch_sub(1);
  }
  set(*r, *owner, at, size, iova, rights);
  return 0;
}

int MemoryTable::prefetch(const Pd& pd, std::uint32_t lkey, std::uint64_t address, std::uint64_t length, bool writable,
                          bool now) {
  const MemoryRegion* r = find(lkey);
  llp::Extent extent;
  if (r == nullptr || resolve(lkey, pd, address, length, writable ? IBV_ACCESS_LOCAL_WRITE : 0, &extent) != Verdict::ok)
    return EFAULT;
  if ((r->access_ & IBV_ACCESS_ON_DEMAND) == 0) return EINVAL;
  if (!now) {
    expect(extent.address, extent.length);
    return 0;
  }
  return populate(extent.address, extent.length, writable) ? 0 : EFAULT;
}

// Requires: entered by this ticket, and not a window of type 1. False: a window is bound to it.
bool MemoryTable::shut(MemoryRegion& r, std::uint64_t ticket) {
  const std::uint64_t closed = MemoryRegion::without_key(ticket);
  if (r.kind_ == MemoryRegion::Kind::window_2) return r.ticket_.compare_exchange_strong(ticket, closed), true;
  const llp::Guard guard(window_lock_);
  return r.windows_ == 0 && (r.ticket_.compare_exchange_strong(ticket, closed), true);
}

Verdict MemoryTable::invalidate(std::uint32_t stag, const Pd& pd, std::uint32_t qp, Invalidates what) {
  std::uint64_t ticket = 0;
  MemoryRegion* r = enter_by_key(stag, &ticket);
  if (r == nullptr) return Verdict::invalid_stag;
  // Entered, so these do not change (a region's kind never does while it is one).
  using Kind = MemoryRegion::Kind;
  const bool window = r->kind_ == Kind::window_2;
  Verdict v = Verdict::ok;
  if (r->pd_ != &pd || (r->kind_ != Kind::region && !window) || (r->qp_ != 0 && r->qp_ != qp))
    v = Verdict::not_associated;
  else if ((!window && what == Invalidates::windows) || !shut(*r, ticket))
    v = Verdict::access;
  leave(r);
  if (v != Verdict::ok) return v;
  // The key is gone. Its owner may have given the region a new one meanwhile, so only the users of the old are waited
  // for: application threads in a copy or a system call that does not block.
  wait_for_users(*r);
  if (window) {
    const llp::Guard guard(window_lock_);
    if (r->stag() == 0) unbind(*r);
  }
  return v;
}

Verdict MemoryTable::resolve(std::uint32_t stag, const Pd& pd, std::uint64_t address, std::uint64_t length,
                             unsigned need, llp::Extent* out, std::uint32_t qp) {
  if (need == 0) need = kLocalRead;
  std::uint64_t ticket = 0;
  MemoryRegion* r = enter_by_key(stag, &ticket);
  if (r == nullptr) return Verdict::invalid_stag;
  Verdict v = Verdict::ok;
  if (r->pd_ != &pd || (r->qp_ != 0 && r->qp_ != qp))
    v = Verdict::not_associated;
  else if ((r->access_ & need) != need)
    v = Verdict::access;
  else if (address > UINT64_MAX - length)
    v = Verdict::wrap;
  else if (address < r->base_ || length > r->length_ || address - r->base_ > r->length_ - length)
    v = Verdict::bounds;
  else if (r->kind_ == MemoryRegion::Kind::null)
    *out = llp::Extent{null_memory(need != kLocalRead), static_cast<std::size_t>(length), r, ticket};
  else
    *out = llp::Extent{r->at(address), static_cast<std::size_t>(length), r, ticket};
  leave(r);
  return v;
}

// The region that this key opens, entered by the ticket; null: none.
MemoryRegion* MemoryTable::enter_by_key(std::uint32_t stag, std::uint64_t* ticket) {
  MemoryRegion* r = find(stag);
  if (r == nullptr || stag == 0) return nullptr;
  r->users_.fetch_add(1, std::memory_order_seq_cst);
  *ticket = r->ticket_.load(std::memory_order_seq_cst);
  if (MemoryRegion::key_of(*ticket) == stag) return r;
  r->users_.fetch_sub(1, std::memory_order_seq_cst);
  return nullptr;
}

bool MemoryTable::enter(void* region, std::uint64_t ticket) {
  auto& r = *static_cast<MemoryRegion*>(region);
  assert(MemoryRegion::key_of(ticket) != 0);
  r.users_.fetch_add(1, std::memory_order_seq_cst);
  if (r.ticket_.load(std::memory_order_seq_cst) == ticket) return true;
  r.users_.fetch_sub(1, std::memory_order_seq_cst);
  return false;
}

void MemoryTable::leave(void* region) {
  [[maybe_unused]] const auto before =
      static_cast<MemoryRegion*>(region)->users_.fetch_sub(1, std::memory_order_seq_cst);
  assert(before > 0);
}

MemoryTable& memory() {
  static MemoryTable* table = new MemoryTable;  // outlives every thread
  return *table;
}

bool copy_in(const llp::Extent& to, const void* from) {
  if (to.region != nullptr && !memory().enter(to.region, to.ticket)) return false;
  const bool ok = llp::guarded_copy(to.address, from, to.length);
  if (to.region != nullptr) memory().leave(to.region);
  return ok;
}

bool copy_out(void* to, const llp::Extent& from) {
  if (from.region != nullptr && !memory().enter(from.region, from.ticket)) return false;
  const bool ok = llp::guarded_copy(to, from.address, from.length);
  if (from.region != nullptr) memory().leave(from.region);
  return ok;
}

namespace {

std::uint64_t result_of(const rdmap::AtomicRequest& r, std::uint64_t memory) {
  if (r.is(rdmap::AtomicRequest::Op::fetch_add)) return rdmap::fetch_add(memory, r.data, r.data_mask);
  return rdmap::compare_swap(memory, r.data, r.data_mask, r.compare, r.compare_mask);
}

bool execute(std::byte* at, const rdmap::AtomicRequest& r, std::uint64_t* original) {
  const bool add = r.is(rdmap::AtomicRequest::Op::fetch_add);
  if (add && r.data_mask == 0) {
    *original = r.data;
    return llp::guarded_fetch_add(at, original);
  }
  // What is there is guessed, then known from the exchange that failed.
  for (std::uint64_t seen = add ? 0 : r.compare;;) {
    *original = seen;
    if (!llp::guarded_compare_exchange(at, &seen, result_of(r, *original))) return false;
    if (seen == *original) return true;
  }
}

}  // namespace

bool atomic(const llp::Extent& target, const rdmap::AtomicRequest& request, std::uint64_t* original) {
  if (target.region != nullptr && !memory().enter(target.region, target.ticket)) return false;
  const bool ok = execute(target.address, request, original);
  if (target.region != nullptr) memory().leave(target.region);
  return ok;
}

bool readable(const llp::Extent& extent) {
  // A large Read's source is probed: for 1 MiB the kernel takes 31 us, which is a sixth of the transfer (a VM,
  // Linux 6.18).
  if (llp::faults_can_be_caught()) return touch(extent.address, extent.length);
  return populate(extent.address, extent.length, false);
}

bool hold(const llp::Extent& extent) {
  return extent.region == nullptr || memory().enter(extent.region, extent.ticket);
}

void let_go(const llp::Extent& extent) {
  if (extent.region != nullptr) memory().leave(extent.region);
}

}  // namespace ewarp::verbs
