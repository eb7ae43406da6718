// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory windows (ibv_bind_mw(3)): keys of their own for a part of a region, given to peers and taken
// back. A window lives in a slot of the table as a region does; while one is bound its region cannot go away. Type 1 is
// for the peers of all QPs of the PD, type 2 (2B) for that of the QP that bound it.
#include <errno.h>

#include "llp/mutex.h"
#include "provider/verbs/memory/memory.h"

namespace ewarp::verbs {
namespace {

constexpr unsigned kRights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
// What is no peer's right may be asked for and means nothing here (pyverbs' tests do).
constexpr unsigned kIgnored = IBV_ACCESS_LOCAL_WRITE;
constexpr unsigned kWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

}  // namespace

int MemoryTable::add_window(Pd& pd, ibv_mw_type type, MemoryRegion** out, std::uint32_t* rkey) {
  MemoryRegion* w = take_slot();
  if (w == nullptr) return ENOMEM;
  const llp::Guard guard(window_lock_);
  w->kind_ = type == IBV_MW_TYPE_1 ? MemoryRegion::Kind::window_1 : MemoryRegion::Kind::window_2;
  w->pd_ = &pd;
  *rkey = w->last_ = new_key(*w);
  pd.users.fetch_add(1);
  *out = w;
  return 0;
}

// Requires: the window lock; no key opens it.
void MemoryTable::unbind(MemoryRegion& w) {
  if (w.window_of_ != nullptr) --w.window_of_->windows_;
  w.window_of_ = nullptr;
  w.qp_ = 0;
}

void MemoryTable::remove_window(MemoryRegion* w) {
  {
    const llp::Guard guard(window_lock_);
    w->close();
    wait_for_users(*w);
    unbind(*w);
    w->kind_ = MemoryRegion::Kind::region;
    w->pd_->users.fetch_sub(1);
  }
  give_slot(w);
}

bool MemoryTable::bind(const WindowBind& b, const Pd& pd, std::uint32_t qp) {
  using Kind = MemoryRegion::Kind;
  MemoryRegion* w = find(b.rkey);
  MemoryRegion* r = find(b.lkey);
  const llp::Guard guard(window_lock_);
  if (w == nullptr || (w->kind_ != Kind::window_1 && w->kind_ != Kind::window_2) || w->pd_ != &pd ||
      (w->last_ ^ b.rkey) >> 8 != 0 || (b.access & ~(kRights | kIgnored)) != 0)
    return false;
  const bool second = w->kind_ == Kind::window_2;
  if (second && w->stag() != 0) return false;
  if (b.length > 0 || second) {
    if (b.length == 0 || b.lkey == 0 || r == nullptr ||
        MemoryRegion::key_of(r->ticket_.load(std::memory_order_seq_cst)) != b.lkey)
      return false;
    if (r->kind_ != Kind::region || r->pd_ != &pd || (r->access_ & IBV_ACCESS_MW_BIND) == 0) return false;
    if ((b.access & kWrites) != 0 && (r->access_ & IBV_ACCESS_LOCAL_WRITE) == 0) return false;
    if (b.address < r->base_ || b.length > r->length_ || b.address - r->base_ > r->length_ - b.length) return false;
  }
  w->close();
  wait_for_users(*w);
  unbind(*w);
  if (b.length == 0) return true;
  w->address_ = r->address_ + (b.address - r->base_);
  w->base_ = b.address;
  w->length_ = b.length;
  w->access_ = b.access & kRights;
  w->last_ = b.rkey;
  w->window_of_ = r;
  w->qp_ = second ? qp : 0;
  ++r->windows_;
  w->open(b.rkey);
  return true;
}

}  // namespace ewarp::verbs
