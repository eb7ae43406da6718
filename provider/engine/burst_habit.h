// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether posts that a thread makes behind each other may wait for its next poll, to leave in one system call instead
// of one each: a message of 8 octets costs some 0.2 us then, not 5, and one of 64 KiB half of what it costs alone.
//
// The first post behind a poll never waits. The others do as long as more has been saved than lost: a post that waits
// for a poll in time saves most of a system call, a poll that comes late has kept messages from the peer so long. The
// same is reckoned where nothing waits, as if it did. So a program that computes behind its posts does so before its
// messages have left a few times in all, and one that others take the CPU from now and then is trusted all the same.
//
// Threading: each thread has its own.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace ewarp::verbs {

// What one call has posted.
struct Posted {
  bool local = false;      // it goes through shared memory
  std::size_t octets = 0;  // of its Sends and Writes
  std::size_t copied = 0;  // those of the short ones among them

  // Messages of up to so many octets are copied on their way to the system call (rdmap/endpoint.h).
  static constexpr std::size_t kCopied = 4 * 1024;
  void add(std::size_t message) {
    octets += message;
    if (message <= kCopied) copied += message;
  }
};

class BurstHabit {
 public:
  static constexpr unsigned kMost = 64;  // posts that wait
  // And their octets. Through shared memory no system call is saved, but the bell for who sleeps.
  static constexpr std::size_t kOctets = 1024 * 1024, kLocalOctets = 16 * 1024;
  static constexpr std::size_t kCopiedOctets = 100 * 1024;  // of those that are copied
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  enum class Verdict : std::uint8_t {
    send,  // at once, and with it what waits
    wait,  // for the thread's next poll, or another verdict
    pass,  // as send, and many were posted behind each other: it is time for a pass, as with a poll
  };

  // bound: the longest that a post may wait; 0: none does. drives: the passes of applications move the octets of this
  // process, so somebody comes back if this thread does not. now() is asked for the time where it matters.
  template <class Clock>
  Verdict posted(const Posted& what, Duration bound, bool drives, Clock now) {
    if (posts_++ == 0 || bound.count() == 0) return Verdict::send;
    const std::size_t most = what.local ? kLocalOctets : kOctets;
    if (waiting_ == kMost || octets_ + what.octets > most || copied_ + what.copied > kCopiedOctets ||
        last_long(what.octets, bound, now)) {
      if (waiting_ == 0) return Verdict::send;
      judge(now() - since_, bound);
      nothing_waits();
      return trusted() ? Verdict::pass : Verdict::send;
    }
    waits_ = trusted() && drives;
    if (waiting_ == 0 || !waits_) at_ = now();
    if (waiting_++ == 0) since_ = at_;
    octets_ += what.octets;
    copied_ += what.copied;
    return waits_ ? Verdict::wait : Verdict::send;
  }
  // The post is sent, but is counted as if it waited: sent() is to be told when that is done.
  bool pretends() const { return waiting_ > 0 && !waits_; }
  // Had it waited, this time would not have passed.
  void sent(Time now) { since_ += now - at_; }
  // The thread polls and finds nothing, or is about to sleep: what waits is to be sent.
  template <class Clock>
  void polled(Duration bound, Clock now) {
    if (waiting_ > 0) judge(now() - since_, bound);
    posts_ = 0;
    nothing_waits();
  }
  // What the posts before the last verdict or poll took of their thread's time.
  Duration took() const { return took_; }
  // Posts would have waited, but nobody drives: it is time to see whether this thread does. Once for each time, and
  // rarely where that was in vain.
  bool asks() { return std::exchange(asks_, false); }
  bool waits() const { return waiting_ > 0 && waits_; }

 private:
  bool trusted() const { return saved_ >= Duration(0); }
  // Posts that follow each other slowly leave in shorter trains, each in time. Before a small one that is looked at so
  // rarely that those which follow more slowly yet are late; beside a large one a look at the clock is nothing.
  template <class Clock>
  bool last_long(std::size_t octets, Duration bound, Clock now) const {
    return waiting_ > 0 && (waiting_ % kLook == 0 || octets >= kLarge) && now() - since_ >= bound / 2;
  }
  void nothing_waits() {
    took_ = waiting_ * (waits_ ? kPosting : kSending);
    waiting_ = 0;
    octets_ = copied_ = 0;
    waits_ = false;
  }
  // The oldest of the posts has waited for so long, or would have.
  void judge(Duration waited, Duration bound) {
    const bool in_time = waited <= bound;
    if (waits_) {
      patience_ = 1;
    } else if (in_time && trusted() && ++in_vain_ >= patience_) {
      asks_ = true;
      in_vain_ = 0;
      patience_ = std::min(2 * patience_, kMostPatience);
    }
    saved_ = std::clamp(saved_ + (in_time ? waiting_ * kSaved : -waited), -kRemembered, kRemembered);
  }

  // Behind so many posts, and before each of so many octets, it is looked how long they have waited.
  static constexpr unsigned kLook = 16;
  static constexpr std::size_t kLarge = 16 * 1024;
  // Of a post that waits; of one that is sent, which counts as much as a pass (driver.h).
  static constexpr Duration kPosting = std::chrono::nanoseconds(500), kSending = std::chrono::microseconds(10);
  // By a post that waits: a system call takes some 4 us.
  static constexpr Duration kSaved = std::chrono::microseconds(4);
  // To be saved before the first post waits: four bursts of eight. No more is remembered than this, so that a program
  // that changes is soon found out.
  static constexpr Duration kFirst = std::chrono::microseconds(100), kRemembered = std::chrono::milliseconds(10);
  static constexpr unsigned kMostPatience = 1u << 16;

  Time at_{}, since_{};                  // the newest post; the oldest one that waits, or would
  std::size_t octets_ = 0, copied_ = 0;  // of those that wait, or would; of the short ones among them
  unsigned posts_ = 0, waiting_ = 0;     // since the last poll; of them wait, or would
  bool waits_ = false;                   // the newest of them does
  Duration took_{};
  Duration saved_ = -kFirst;             // less what was lost
  unsigned in_vain_ = 0, patience_ = 1;  // bursts that would have waited; of them before it asks
  bool asks_ = false;
};

}  // namespace ewarp::verbs
