// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether the host of a stream's peer has vanished while octets are under way to it (docs/design/llp.md).
#pragma once

#include <algorithm>
#include <chrono>

namespace ewarp::llp {

// What a stream tells of octets that are under way.
struct Unanswered {
  // How often in a row they were sent again, or a peer without room was asked whether it has room now. Begins anew when
  // an answer brings something forward.
  unsigned asked = 0;
  std::chrono::milliseconds silence{0};  // since the last acknowledgement, of whatever
};

// The judge of one stream. A peer that takes nothing because its program has stopped is told from one whose host is
// gone: the kernel of the former answers each question, and its silence is as long as the pause between two of them,
// which doubles up to two minutes (RFC 6298 section 5.5, RFC 9293 section 3.8.6.1). So a long silence alone says
// nothing. Threading: one thread at a time.
class HostWatch {
 public:
  using Clock = std::chrono::steady_clock;
  // So many questions in a row may be lost on the way, with their answers.
  static constexpr unsigned kInVain = 3;

  // The first look comes so long after the octets left, at most.
  static constexpr std::chrono::milliseconds kFirstLook{1000};

  // True: the host has been silent for `limit`, and for kInVain questions. Called every kFirstLook while something is
  // under way, and told by idle() when nothing is.
  bool gone(const Unanswered& now, std::chrono::milliseconds limit, Clock::time_point at) {
    // Who was asked nothing before need not have answered.
    if (looked_ == Clock::time_point{}) began_ = at - std::min(now.silence, kFirstLook);
    // It has answered since the last look: perhaps all that was asked so far.
    if (at - now.silence > looked_ || now.asked < answered_) answered_ = now.asked;
    looked_ = at;
    return now.silence >= limit && at - began_ >= limit && now.asked - answered_ >= kInVain;
  }
  void idle() { *this = {}; }

 private:
  Clock::time_point began_{};   // when what is under way left, or before
  Clock::time_point looked_{};  // the last look
  unsigned answered_ = 0;       // of what was asked
};

}  // namespace ewarp::llp
