// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The sockets that the engine serves, and one bounded pass over those that have something to do.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "llp/batch.h"
#include "llp/ready_set.h"
#include "provider/engine/pollable.h"

namespace ewarp::verbs {

// One socket that moved something lately is asked directly (`hot`), and so are a few streams for which that is no
// system call (`near`); all others through the ready set: a pass costs what is ready, whatever their number. Threading:
// engine held, but for fd().
class ActiveSet {
 public:
  explicit ActiveSet(std::unique_ptr<llp::Batch> batch) : batch_(std::move(batch)) {}
  ~ActiveSet() { close(); }
  ActiveSet(const ActiveSet&) = delete;
  ActiveSet& operator=(const ActiveSet&) = delete;

  // 0 or errno (EMFILE). Requires: not open.
  int open();
  bool is_open() const { return ready_.is_open(); }
  // Readable while a socket that is watched has something to do. Any thread.
  int fd() const { return ready_.fd(); }

  // 0 or errno (ENOMEM): the kernel cannot watch it.
  [[nodiscard]] int add(Pollable& p);
  // No call reaches it afterwards. Before its fd is closed.
  void remove(Pollable& p);
  // What it wants to read or write has changed. lazily: nobody sleeps on fd(), so for those that are asked directly it
  // is enough that watch_all() comes before somebody does.
  void update(Pollable& p, bool lazily);
  // Before somebody sleeps on fd(). rang: it was found ready since the last call.
  void watch_all(bool rang);
  // While somebody sleeps on fd() another thread's pass has taken what there was, or has left something to write: what
  // comes later tells, too.
  void keep_watching();

  // Every ready socket gets its turn, at most kBatch and those that are asked directly in one pass. between(): called
  // where nothing is being iterated. How many octets were moved.
  template <class Between>
  std::size_t pass(Between between);

  // How many sockets the last pass gave their turn; of those near the ones that moved something.
  std::size_t served() const { return served_; }
  bool empty() const { return first_ == nullptr; }
  template <class F>
  void for_each(F f);
  // Nothing of it belongs to the child: its sockets are closed. It may be opened anew.
  void close_in_child(std::unique_ptr<llp::Batch> fresh);

 private:
  static constexpr std::size_t kBatch = llp::ReadySet::kMost;
  // Fewer receives are cheaper as single system calls (docs/design/llp.md).
  static constexpr std::size_t kWorthABatch = 8;
  // To ask so many takes no longer than to ask the ready set; to ask one so often, as long as its peer's bell costs
  // (docs/design/performance.md).
  static constexpr std::size_t kNear = 8;
  static constexpr std::uint64_t kSilent = 128;

  std::size_t turn(Pollable& p);
  std::size_t near_turns(bool alone);
  void close();
  std::size_t turns();
  std::size_t batch_of_streams();
  bool watch_fd(Pollable& p);
  void watch(Pollable& p);
  void find();
  void wake(Pollable& p);
  void forget_awake(Pollable& p);
  void make_hot(Pollable* p);
  std::span<Pollable* const> near() const { return {near_.data(), near_count_}; }
  std::span<Pollable*> near() { return {near_.data(), near_count_}; }
  bool is_asked_directly(const Pollable& p) const;
  bool all_are_near() const;
  void ask_all();
  void leave(Pollable& p);
  void keep(Pollable& p);
  void forget_near(Pollable& p);

  llp::ReadySet ready_;
  std::unique_ptr<llp::Batch> batch_;
  // Those that have something to do of which their fd does not tell: a descriptor that is ready as long as there are
  // any tells of them.
  std::vector<Pollable*> awake_;
  int awake_fd_ = -1;
  Pollable *first_ = nullptr, *hot_ = nullptr;
  std::size_t size_ = 0;
  std::array<Pollable*, kNear> near_{};         // without the hot one
  std::size_t near_count_ = 0, near_size_ = 0;  // of them; of all that might be
  std::uint64_t passes_ = 0;
  bool others_waited_ = false;  // the last pass ended with the hot one
  // What this pass has found; null where it was removed meanwhile.
  std::array<void*, kBatch> found_{};
  std::size_t found_count_ = 0;
  std::size_t served_ = 0;
};

template <class Between>
std::size_t ActiveSet::pass(Between between) {
  served_ = 0;
  if (first_ == nullptr) return 0;
  if (size_ == 1) {
    make_hot(first_);
    served_ = 1;
    return turn(*first_);
  }
  std::size_t moved = 0;
  if (hot_ != nullptr) {
    moved = turn(*hot_);
    served_ = 1;
  }
  const bool alone = all_are_near();
  if (alone) ask_all();
  if (near_count_ > 0) moved += near_turns(alone);
  if (alone) return moved;
  if (hot_ != nullptr || near_count_ > 0) {
    // The others are asked in every second pass at least.
    others_waited_ = moved > 0 && !others_waited_;
    if (others_waited_) return moved;
    between();
  }
  return moved + turns();
}

template <class F>
void ActiveSet::for_each(F f) {
  for (Pollable* p = first_; p != nullptr;) {
    Pollable* next = p->after_;
    f(*p);
    p = next;
  }
}

}  // namespace ewarp::verbs
