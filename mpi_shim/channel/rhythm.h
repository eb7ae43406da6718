// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether the calls of an application follow each other at once: who leaves the library then need not arm events for
// the progress thread, which costs a wake-up. Calls with large requests are of their own kind: what follows small ones,
// those of a barrier for instance, says nothing about them.
//
// One pause breaks no rhythm: others take a CPU now and then. Behind a pause the thread's own CPU time is asked for as
// well: what others take of its CPU, a thread that was woken by the events for instance, is no pause of the
// application's. That is a system call, so it is made seldom while it makes no difference.
//
// Pure: the time comes as an argument, in nanoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace ewarp::channel {

class Rhythm {
 public:
  enum class Kind : std::uint8_t { send, large_send, receive, large_receive, other };
  static constexpr std::uint64_t kAtOnceNs = 30'000;

  // A call begins. used(): the calling thread's CPU time so far, asked for where it matters: it is a system call. True:
  // the call follows the one before at once.
  template <class Used>
  bool enter(std::uint64_t now, Used used) {
    bool at_once = now - std::min(now, left_at_) <= kAtOnceNs;
    if (asked_) {
      const bool others = !at_once && used() - used_ <= kAtOnceNs;  // what another thread has used is far from it
      in_vain_ = others ? 0 : std::min(in_vain_ + 1, kInVain);
      unasked_left_ = in_vain_ < kInVain ? 0 : kUnasked;
      at_once = at_once || others;
    }
    std::uint8_t& pauses = pauses_[static_cast<std::size_t>(last_)];
    pauses = at_once ? 0 : std::min<std::uint8_t>(pauses + 1, kPauses);
    return at_once;
  }
  // It ends, having been of this kind. now: when, or when it began if it had nothing to do.
  template <class Used>
  void leave(Kind kind, std::uint64_t now, Used used) {
    last_ = kind;
    left_at_ = now;
    asked_ = pauses_[static_cast<std::size_t>(kind)] > 0 && take_turn();
    if (asked_) used_ = used();
  }
  // Whether calls of this kind were followed by another at once: not behind two in a row that were not.
  bool followed(Kind kind) const { return pauses_[static_cast<std::size_t>(kind)] < kPauses; }

 private:
  bool take_turn() {
    if (unasked_left_ == 0) return true;
    --unasked_left_;
    return false;
  }

  static constexpr std::uint8_t kPauses = 2;
  static constexpr unsigned kInVain = 4, kUnasked = 15;

  std::array<std::uint8_t, static_cast<std::size_t>(Kind::other) + 1> pauses_ = [] {
    decltype(pauses_) all{};
    all.fill(kPauses);
    return all;
  }();  // in a row, by kind
  Kind last_ = Kind::other;
  std::uint64_t left_at_ = 0, used_ = 0;
  bool asked_ = false;
  unsigned in_vain_ = 0, unasked_left_ = 0;  // answers in a row that made no difference; times that go without it
};

}  // namespace ewarp::channel
