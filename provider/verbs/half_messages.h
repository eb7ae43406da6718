// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Messages of which a part has come: each holds a receive of a shared receive queue until the rest is here. A peer that
// sends no more would hold it for ever, and some of them all receives (docs/design/verbs.md, Shared receive queues).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "rdmap/request.h"

namespace ewarp::verbs {

class Engine;

// A queue pair that takes receives from a shared receive queue. Engine held.
class ReceiveHolder {
 public:
  // The message that holds a receive and has come in part.
  virtual std::optional<rdmap::HalfMessage> half_message() const = 0;
  // Others need the receive, and nothing more comes: the stream ends.
  virtual void end_half_message() = 0;

 protected:
  ~ReceiveHolder() = default;
};

// Whether a half message stands still, as seen at looks that are some time apart. Without a clock: a process that was
// stopped itself makes no looks meanwhile, and has read what has come before it makes the next ones.
class Standstill {
 public:
  static constexpr unsigned kLooks = 4;
  // A message that grows by less from the first of these looks to the last stands still: octet by octet it would hold
  // its receive for ever, too.
  static constexpr std::uint64_t kLeast = 32 * 1024;

  // True: it does, at this look and at the kLooks before it.
  bool look(const std::optional<rdmap::HalfMessage>& now) {
    const bool same = now && seen_ && now->msn == seen_->msn && now->octets < seen_->octets + kLeast;
    still_ = same ? still_ + 1 : 0;
    if (!same) seen_ = now;
    return still_ >= kLooks;
  }
  void forget() { seen_.reset(); }

 private:
  std::optional<rdmap::HalfMessage> seen_;  // when it moved on, or was seen first
  unsigned still_ = 0;                      // looks since
};

// Those of one shared receive queue. While others wait for a receive it looks at them, a few times in the option's
// half_message_ms, and ends those that stand still. Threading: engine held.
class HalfMessages : public std::enable_shared_from_this<HalfMessages> {
 public:
  explicit HalfMessages(Engine& engine) : engine_(engine) {}
  // A stream of this one has begun, or ended.
  void join(ReceiveHolder& holder);
  void leave(ReceiveHolder& holder) { holders_.erase(&holder); }
  // Somebody waits for a receive; nobody does.
  void needed();
  void not_needed() { needed_ = false; }
  // How long who waits may wait while somebody has a half message, since that one ends or moves on; twice as long as
  // the looks take, so that nobody waits for ever for those that move on. 0: there is none, or the option is 0.
  std::chrono::milliseconds patience() const;
  // The queue goes away. Requires: nobody has joined.
  void close();

 private:
  void look();
  void look_later();

  Engine& engine_;
  std::unordered_map<ReceiveHolder*, Standstill> holders_;
  std::vector<ReceiveHolder*> due_;  // has room for all: a look allocates nothing but its timer
  bool needed_ = false;
  std::uint64_t timer_ = 0;
};

}  // namespace ewarp::verbs
