// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What an association owes its peer in acknowledgements.
#pragma once

#include <cstdint>

namespace ewarp::llp::rd {

// An acknowledgement is a datagram of its own, or rides along with data, which cannot say everything: a refusal has to
// go out on its own. Small, since every idle association keeps one.
class AckDue {
 public:
  // A segment arrived. at_once: it asks for an answer; ce: it carries a CE mark, which acknowledgements echo.
  void segment(bool at_once, bool ce) {
    if (ce) echoes_ = kEchoes;
    at_once_ = at_once || ce;
  }
  void hurry() { at_once_ = true; }
  // What is due finds no receive.
  void refuse() { refuses_ = at_once_ = true; }
  // Whether the segment that is being handled has to be answered at once.
  bool at_once() const { return at_once_; }

  // One is to go out when the present datagrams are handled.
  void ask() { due_ = true; }
  bool due() const { return due_; }
  // Whether one may wait for data to ride along with: once.
  bool may_wait() const { return due_ && !waited_; }
  void waits(bool it_does) { waited_ = it_does; }

  // Data went out and said all that it can.
  void carried() { due_ = refuses_; }
  // One goes out on its own. True: it has to say that there is no receive.
  bool sent() {
    const bool refuses = refuses_;
    refuses_ = at_once_ = due_ = false;
    if (lossy_ != 0) --lossy_;
    return refuses;
  }
  // Whether the acknowledging datagram that goes out now echoes a CE mark.
  bool echo() {
    if (echoes_ == 0) return false;
    --echoes_;
    return true;
  }

  // Datagrams got lost, in either direction. Acknowledgements may be, too: for a while each goes out at once.
  void lost() { lossy_ = kLossyFor; }
  bool lossy() const { return lossy_ != 0; }

 private:
  static constexpr std::uint8_t kLossyFor = 200;  // acknowledgements
  static constexpr std::uint8_t kEchoes = 3;      // one of them may be lost

  bool at_once_ : 1 = false;
  bool refuses_ : 1 = false;
  bool due_ : 1 = false;
  bool waited_ : 1 = false;
  std::uint8_t echoes_ = 0;  // acknowledging datagrams that still carry it
  std::uint8_t lossy_ = 0;   // acknowledgements until the path is taken for one that loses nothing
};

}  // namespace ewarp::llp::rd
