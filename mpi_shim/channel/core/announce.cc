// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/core/announce.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <new>
#include <utility>

namespace ewarp::channel {

// --- the sender's side ---

void SentNumbers::drop(Entry& e, Count why) {
  assert(stored_ >= e.announced.size());
  counters_.add(why, e.announced.size());
  stored_ -= e.announced.size();
  e.announced.clear();
}

SentNumbers::Entry& SentNumbers::entry(Tag tag) {
  if (Entry* e = tags_.find(tag)) return *e;
  if (tags_.full()) {
    Entry oldest = tags_.forget();
    drop(oldest, Count::got_evicted);
    counters_.add(Count::counter_evictions);
    // The peer has seen no message beyond oldest.next, so it announced for numbers below next + window. For tags that
    // were never used it announced from a floor of before, so what rises does so by a window at least.
    if (oldest.next + kWindow > floor_) floor_ = std::max(floor_, oldest.next) + kWindow;
  }
  return tags_.add(tag, Entry{.next = floor_, .announced = {}});
}

const Announcement* SentNumbers::peek(Tag tag) {
  const Entry* e = tags_.find(tag);
  return e == nullptr || e->announced.empty() || e->announced.front().number != e->next ? nullptr
                                                                                        : &e->announced.front();
}

SentNumbers::Turn SentNumbers::take(Tag tag) {
  Entry& e = entry(tag);
  Turn turn{.number = e.next++, .announcement = std::nullopt};
  if (!e.announced.empty() && e.announced.front().number == turn.number) {
    assert(stored_ > 0);
    turn.announcement = e.announced.front();
    e.announced.pop_front();
    --stored_;
  }
  return turn;
}

SentNumbers::Verdict SentNumbers::store(Tag tag, const Announcement& a) {
  Entry& e = entry(tag);
  if (a.number < e.next) return Verdict::old;
  const bool rising = e.announced.empty() || e.announced.back().number < a.number;
  if (!rising || a.number - e.next >= kWindow || stored_ >= kMostAnnounced) return Verdict::violation;
  e.announced.push_back(a);
  ++stored_;
  return Verdict::stored;
}

void SentNumbers::retract(Tag tag) {
  if (Entry* e = tags_.find(tag)) drop(*e, Count::got_retracted);
}

// --- the receiver's side ---

void Usage::record(bool used, unsigned percent) {
  if (left_ > 0) {
    --left_;
    return;
  }
  results_ = results_ << 1 | (used ? 1 : 0);
  known_ = std::min(known_ + 1, kLongest);
  if (known_ < kFewest) return;
  const auto of_known = static_cast<unsigned>(std::popcount(results_ & ((1u << known_) - 1)));
  const bool pays = 100 * of_known >= percent * known_;
  if (pays && !stopped_ && known_ == kLongest) pause_ = 0;
  if (pays != stopped_) return;
  stopped_ = !pays;
  if (stopped_) left_ = std::exchange(pause_, std::clamp(2 * pause_, kFewest, kLongestPause));
  known_ = 0;  // what was seen from now on is of another kind
}

ArrivedNumbers::Entry* ArrivedNumbers::add(Tag tag, std::uint64_t next) {
  if (tags_.full()) {
    tags_.forget();
    forgot_ = true;
    counters_.add(Count::counter_evictions);
  }
  try {
    return &tags_.add(tag, Entry{.next = next, .usage = {}});
  } catch (const std::bad_alloc&) {  // a message that has come is not lost for want of a count
    forgot_ = true;
    return nullptr;
  }
}

bool ArrivedNumbers::arrived(Tag tag, std::uint64_t number) {
  Entry* e = tags_.find(tag);
  if (e == nullptr) {
    add(tag, number + 1);
    return true;
  }
  // More than the next one: the sender forgot the tag and started it again.
  if (number < e->next) return false;
  e->next = number + 1;
  return true;
}

std::optional<std::uint64_t> ArrivedNumbers::next(Tag tag) {
  if (const Entry* e = tags_.find(tag)) return e->next;
  if (forgot_) return std::nullopt;
  // Kept, because the floor may rise before the first message, and the numbers that were announced stay.
  const Entry* e = add(tag, floor_);
  return e != nullptr ? std::optional(e->next) : std::nullopt;
}

Usage* ArrivedNumbers::usage(Tag tag) {
  Entry* e = tags_.find(tag);
  return e == nullptr ? nullptr : &e->usage;
}

}  // namespace ewarp::channel
