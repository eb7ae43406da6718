// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/engine/active_set.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>

#include "llp/fd.h"
#include "provider/base/log.h"

namespace ewarp::verbs {

int ActiveSet::open() {
  assert(!is_open());
  if (const int error = ready_.open()) return error;
  awake_fd_ = llp::make_high_fd([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  const int error = awake_fd_ < 0 ? errno : ready_.add(awake_fd_, POLLIN, &awake_fd_);
  if (error != 0) close();
  return error;
}

void ActiveSet::close() {
  ready_.close();
  if (awake_fd_ >= 0) llp::close_fd(std::exchange(awake_fd_, -1));
  awake_.clear();
}

int ActiveSet::add(Pollable& p) {
  assert(is_open() && !p.in_engine_);
  p.watched_ = POLLIN;
  awake_.reserve(size_ + 1);  // wake() never allocates
  if (const int error = ready_.add(p.fd(), p.watched_, &p)) return error == ENOSPC ? ENOMEM : error;
  p.in_engine_ = true;
  p.before_ = nullptr;
  p.after_ = first_;
  if (first_ != nullptr) first_->before_ = &p;
  first_ = &p;
  ++size_;
  if (size_ == 1) make_hot(&p);
  p.rang_ = false;
  p.near_ = p.is_near();
  near_size_ += p.near_ ? 1 : 0;
  if (p.arm(false)) wake(p);
  return 0;
}

void ActiveSet::remove(Pollable& p) {
  if (!p.in_engine_) return;
  if (p.watched_ != 0) ready_.remove(p.fd());
  p.watched_ = 0;
  p.in_engine_ = false;
  forget_awake(p);
  (p.before_ != nullptr ? p.before_->after_ : first_) = p.after_;
  if (p.after_ != nullptr) p.after_->before_ = p.before_;
  p.before_ = p.after_ = nullptr;
  assert(size_ > 0);
  --size_;
  near_size_ -= p.near_ ? 1 : 0;
  if (hot_ == &p) hot_ = nullptr;
  forget_near(p);
  std::replace(found_.begin(), found_.begin() + static_cast<std::ptrdiff_t>(found_count_), static_cast<void*>(&p),
               static_cast<void*>(nullptr));
}

// A socket that wants nothing is taken out: hang-ups are reported whether asked for or not, again and again.
bool ActiveSet::watch_fd(Pollable& p) {
  assert(p.in_engine_);
  const std::uint32_t wanted = p.watched_for();
  if (wanted == p.watched_) return true;
  if (wanted == 0) {
    ready_.remove(p.fd());
  } else if (const int error = p.watched_ == 0 ? ready_.add(p.fd(), wanted, &p) : ready_.change(p.fd(), wanted, &p)) {
    log::error("a socket cannot be watched: {}", std::generic_category().message(error));
    p.broken();
    return false;
  }
  p.watched_ = wanted;
  return true;
}

void ActiveSet::watch(Pollable& p) {
  if (watch_fd(p) && p.arm(std::exchange(p.rang_, false))) wake(p);
}

void ActiveSet::wake(Pollable& p) {
  if (std::exchange(p.awake_, true)) return;
  assert(awake_.size() < awake_.capacity());
  if (awake_.empty()) eventfd_write(awake_fd_, 1);
  awake_.push_back(&p);
}

void ActiveSet::forget_awake(Pollable& p) {
  if (!std::exchange(p.awake_, false)) return;
  awake_.erase(std::find(awake_.begin(), awake_.end(), &p));
  eventfd_t count;
  if (awake_.empty()) eventfd_read(awake_fd_, &count);
}

// Those of which their fd tells, then the others: half of the places is theirs, if need be.
void ActiveSet::find() {
  assert(found_count_ == 0);
  found_count_ = ready_.collect(std::span(found_).first(awake_.empty() ? found_.size() : found_.size() / 2));
  const auto end = found_.begin() + static_cast<std::ptrdiff_t>(found_count_);
  found_count_ =
      static_cast<std::size_t>(std::remove(found_.begin(), end, static_cast<void*>(&awake_fd_)) - found_.begin());
  for (std::size_t i = 0; i < found_count_; ++i) {
    static_cast<Pollable*>(found_[i])->rang_ = true;
    forget_awake(*static_cast<Pollable*>(found_[i]));
  }
  while (found_count_ < found_.size() && !awake_.empty()) {
    found_[found_count_++] = awake_.front();
    forget_awake(*awake_.front());
  }
}

void ActiveSet::update(Pollable& p, bool lazily) {
  if (p.in_engine_ && !(lazily && is_asked_directly(p))) watch(p);
}

// All can be asked directly, so the ready set has nothing to tell.
bool ActiveSet::all_are_near() const {
  return size_ <= kNear + 1 && near_size_ + (hot_ != nullptr && !hot_->near_ ? 1 : 0) == size_;
}

void ActiveSet::ask_all() {
  if (near_count_ + (hot_ != nullptr ? 1 : 0) == size_) return;
  if (hot_ == nullptr) hot_ = first_;
  near_count_ = 0;
  for_each([this](Pollable& p) {
    if (&p != hot_) near_[near_count_++] = &p;
    p.moved_at_ = passes_;
  });
}

bool ActiveSet::is_asked_directly(const Pollable& p) const {
  return &p == hot_ || std::ranges::find(near(), &p) != near().end();
}

// They have their turns whether their fds are ready or not: they may be. Whoever cannot be watched is told so, and is
// removed later.
void ActiveSet::watch_all(bool rang) {
  const auto watch_one = [&](Pollable& p) {
    p.rang_ |= rang || p.rung();
    watch(p);
  };
  for (Pollable* p : near()) watch_one(*p);
  if (hot_ != nullptr) watch_one(*hot_);
}

// What woke the sleeper stays, or it would find nothing and sleep on.
void ActiveSet::keep_watching() {
  for (Pollable* p : near())
    if (p->moved_at_ == passes_ && watch_fd(*p) && p->arm(false)) wake(*p);
  if (hot_ != nullptr && watch_fd(*hot_) && hot_->arm(false)) wake(*hot_);
}

void ActiveSet::make_hot(Pollable* p) {
  if (hot_ == p) return;
  if (p != nullptr) forget_near(*p);
  Pollable* const before = std::exchange(hot_, p);
  if (before != nullptr) leave(*before);
}

// It was asked directly, or has just had its turn, and is not hot: its fd is asked from here on, unless it is near.
void ActiveSet::leave(Pollable& p) {
  p.near_ ? keep(p) : watch(p);
  p.rest();
}

void ActiveSet::keep(Pollable& p) {
  p.moved_at_ = passes_;
  if (std::ranges::find(near(), &p) != near().end()) return;
  if (near_count_ < kNear) {
    near_[near_count_++] = &p;
    return;
  }
  Pollable*& last = *std::ranges::min_element(near(), {}, [](const Pollable* q) { return q->moved_at_; });
  watch(*std::exchange(last, &p));
}

void ActiveSet::forget_near(Pollable& p) {
  near_count_ -= std::ranges::remove(near(), &p).size();
}

// Who ends in its turn leaves its place to the next, which waits for the next pass. alone: nobody else is asked;
// otherwise who has been silent is watched again.
std::size_t ActiveSet::near_turns(bool alone) {
  ++passes_;
  std::size_t moved = 0;
  for (std::size_t i = 0; i < near_count_; ++i) {
    Pollable& p = *near_[i];
    const std::size_t some = turn(p);
    if (some == 0) {
      if (alone || !p.in_engine_ || passes_ - p.moved_at_ < kSilent) continue;
      forget_near(p);
      watch(p);
      continue;
    }
    moved += some;
    ++served_;
    if (!p.in_engine_) continue;
    p.moved_at_ = passes_;
    p.rest();
  }
  return moved;
}

std::size_t ActiveSet::turn(Pollable& p) {
  forget_awake(p);
  try {
    return p.turn();
  } catch (const std::exception& e) {
    log::error("a socket could not be served: {}", e.what());
    p.broken();
    return 1;
  }
}

std::size_t ActiveSet::turns() {
  find();
  // Those that are asked directly have had their turn. The bell of one may be there until its stream is armed.
  const auto end = found_.begin() + static_cast<std::ptrdiff_t>(found_count_);
  found_count_ = static_cast<std::size_t>(
      std::remove_if(found_.begin(), end,
                     [this](void* p) { return p != hot_ && is_asked_directly(*static_cast<Pollable*>(p)); }) -
      found_.begin());
  served_ += found_count_;
  if (found_count_ == 0) return 0;
  std::replace(found_.begin(), found_.begin() + static_cast<std::ptrdiff_t>(found_count_), static_cast<void*>(hot_),
               static_cast<void*>(nullptr));
  std::size_t moved = found_count_ >= kWorthABatch ? batch_of_streams() : 0;
  const bool alone = found_count_ == 1;
  for (std::size_t i = 0; i < found_count_; ++i) {
    if (found_[i] == nullptr) continue;
    auto& p = *static_cast<Pollable*>(found_[i]);
    moved += turn(p);
    if (found_[i] == nullptr) continue;  // it has ended
    if (alone) {
      make_hot(&p);
    } else {
      leave(p);
    }
  }
  if (!alone && moved > 0) make_hot(nullptr);
  found_count_ = 0;
  return moved;
}

// The receives of many streams in one system call. Those that moved less than they asked for have had their turn but
// for sending; a stream in full flow gets it all.
std::size_t ActiveSet::batch_of_streams() {
  std::array<BatchedReceiver*, kBatch> streams;
  std::array<std::size_t, kBatch> places;
  std::array<llp::Batch::Op, kBatch> ops;
  std::size_t count = 0;
  for (std::size_t i = 0; i < found_count_; ++i) {
    auto* p = static_cast<Pollable*>(found_[i]);
    BatchedReceiver* stream = p == nullptr || !p->wants_to_read() ? nullptr : p->batched();
    if (stream == nullptr) continue;
    places[count] = i;
    streams[count++] = stream;
  }
  if (count < kWorthABatch) return 0;
  // Before the first region is entered: nothing is allocated from then on (llp/gather.h).
  for (std::size_t i = 0; i < count; ++i) streams[i]->take_buffers();
  for (std::size_t i = 0; i < count; ++i)
    ops[i] = {static_cast<Pollable*>(found_[places[i]])->fd(), false, streams[i]->prepare(), 0};
  batch_->run(std::span(ops.data(), count));
  // Before any stream's octets are handled: they may take away a region that another one was reading into.
  for (std::size_t i = 0; i < count; ++i) streams[i]->leave_regions();
  std::size_t moved = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (found_[places[i]] == nullptr) continue;  // ended by another one's octets
    auto& p = *static_cast<Pollable*>(found_[places[i]]);
    try {
      moved += streams[i]->finish_turn(ops[i].result);
    } catch (const std::exception& e) {
      log::error("a stream could not be served: {}", e.what());
      p.broken();
    }
    if (found_[places[i]] == nullptr) continue;
    watch(p);
    p.rest();
    found_[places[i]] = nullptr;
  }
  return moved;
}

void ActiveSet::close_in_child(std::unique_ptr<llp::Batch> fresh) {
  for_each([](Pollable& p) {
    p.in_engine_ = false;
    p.watched_ = 0;
    p.awake_ = false;
    p.close_in_child();
  });
  first_ = hot_ = nullptr;
  size_ = near_count_ = near_size_ = 0;
  found_count_ = 0;
  close();
  batch_->close_in_child();
  batch_ = std::move(fresh);
}

}  // namespace ewarp::verbs
