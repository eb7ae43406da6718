// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether the completion of a Write is given to a program that polls as soon as it is there, or held back for a moment
// in which the poll makes passes.
//
// A program that waits for its peer's Write by looking at memory makes no call in which it could be received: a thread
// of ours has to be woken for it, and to get a CPU that the program spins on. If that program writes itself (a
// ping-pong), it polls for the completion of its Write before it goes off to look at memory. An RNIC gives that
// completion when the peer has acknowledged; here it is there when the kernel has the octets. Held until a message of
// the peer's has come it costs no time, and the program's own thread receives the message.
//
// It pays where the time between two completions is shorter with it than without. That messages come is not enough:
// they may also come to a program that computes. So it is tried where messages have come between completions, is
// measured, and dropped at once where it does not pay; the next trial then takes twice as many of them.
//
// While the peer does not hold yet, its answer takes as long as the kernel needs to wake a thread there: on some
// machines longer than the bound. So a completion is held for the usual time between two of them, up to a few times the
// bound. A shorter hold would end in vain at both ends in turns, and none would ever be the first whose hold pays.
//
// A large Write is given more time, for what a round trip still has to copy: the answer, of the same size perhaps, is
// copied after the Write was.
//
// Threading: posted() by posters, heard() and done() by the engine's holder, the rest under the lock of the send
// queue's CQ.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>

namespace ewarp::verbs {

class WriteHold {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  // bound: a small Write's completion may be held for so long, and for kWakes times that if the usual time from one to
  // the next is longer.
  explicit WriteHold(Duration bound) : bound_(bound) {}

  // Of fewer octets all copies of a round trip are done within the bound: it is not worth asking what time it is.
  static constexpr std::uint64_t kLarge = 16 * 1024;
  // A Write has been posted behind everything else; when: Time() if it is not large.
  void posted(Time when) { posted_.store(when.time_since_epoch().count(), std::memory_order_relaxed); }
  bool is_large() const { return posted_.load(std::memory_order_relaxed) != 0; }
  // Its completion is about to be made. Relaxed, as posted(): another one that is posted meanwhile shortens the hold.
  void done(Time now) {
    const Duration posted(posted_.load(std::memory_order_relaxed));
    const Duration took = posted.count() == 0 ? Duration(0) : now.time_since_epoch() - posted;
    took_.store(took.count(), std::memory_order_relaxed);
  }

  // A message of the peer's has come: it is in memory, or its completion is made.
  void heard() { messages_.store(messages_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  // How many have. Relaxed: who is told a moment too late holds a completion for that moment.
  std::uint64_t messages() const { return messages_.load(std::memory_order_relaxed); }

  // A poll is about to give the completion of a Write, the only one that there is, behind which nothing is posted; so
  // many messages had come when it was made. True: it is held, until over() or release().
  bool begin(std::uint64_t messages, Time now) {
    const Duration cycle = now - since_;
    const bool answered = messages != before_;
    before_ = messages;
    since_ = now;
    if (!answered) {
      stop();
    } else if (trying_) {
      judge(cycle);
    } else {
      // Of as many as are tried: the least of more would be less by chance.
      usual_ = answered_ % kTrial == 0 ? cycle : std::min(usual_, cycle);
      trying_ = ++answered_ >= needed_;
    }
    // Behind the usual time nothing would be gained.
    if (trying_) limit_ = std::max(bound_, std::min(kWakes * bound_ + kCopies * took(), usual_));
    return trying_;
  }
  // After a pass. True: it is given.
  bool over(Time now) {
    if (messages() != before_) {
      slipped_ = false;
      return true;
    }
    if (now - since_ < limit_) return false;
    // A peer that lost its CPU for a moment, or does not hold yet, is no reason to begin anew.
    if (std::exchange(slipped_, true)) fail();
    return true;
  }
  // It is given for another reason: something else can be given too, or the program may be about to sleep.
  void release() { fail(); }

 private:
  // The least of each kind: what disturbs makes things slower.
  void judge(Duration cycle) {
    best_ = std::min(best_, cycle);
    if (++tried_ % kTrial != 0) return;
    if (best_ > usual_ - usual_ / kGain) fail();
    best_ = Duration::max();
  }
  Duration took() const { return Duration(took_.load(std::memory_order_relaxed)); }
  void fail() {
    needed_ = tried_ >= kProved ? 1 : std::min(std::max(needed_, kLearn) * 2, kMost);
    stop();
  }
  void stop() {
    trying_ = slipped_ = false;
    usual_ = best_ = Duration::max();
    answered_ = tried_ = 0;
  }

  // Completions, each followed by a message: before the first trial; in a trial; after which it has proved itself.
  static constexpr unsigned kLearn = 4, kTrial = 4, kProved = 16;
  static constexpr unsigned kMost = 1u << 16;
  static constexpr int kGain = 16;  // this part of the usual time is to be gained, or there is no gain

  // To wake the peer's thread takes up to so many times the bound.
  static constexpr int kWakes = 4;

  // Behind the copy that ends with the completion: the peer's of what we wrote, the peer's of its answer, and ours of
  // it.
  static constexpr int kCopies = 3;

  const Duration bound_;
  Duration limit_{};                      // of the completion that is held
  std::atomic<Duration::rep> posted_{0};  // the newest Write; 0: it is not large
  std::atomic<Duration::rep> took_{0};    // from its post to its completion
  std::atomic<std::uint64_t> messages_{0};
  std::uint64_t before_ = 0;                                   // messages, at the last completion
  Time since_{};                                               // when it was seen
  Duration usual_ = Duration::max(), best_ = Duration::max();  // from one to the next: not held, held
  unsigned answered_ = 0, needed_ = kLearn, tried_ = 0;
  bool trying_ = false, slipped_ = false;
};

}  // namespace ewarp::verbs
