// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The counters that make announcements (RECEIVER_READY ahead of any SENDER_READY) safe: messages of each (peer, tag)
// are numbered by their sender, and an announcement says for which number it is meant. Both ends count for themselves.
//
// Memory is bounded: each end counts at most so many tags per peer and forgets the one not used for longest.
// A sender that forgot a tag starts it again from its floor, a number above any that an announcement for a forgotten
// tag can carry, so what was announced before is recognised as old. Tags that were never used start there as well: the
// floor is so far above each former one that what was announced from that is old, too. A receiver that forgot a tag
// learns its number with the tag's next message and announces nothing until then.
#pragma once

#include <cassert>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <unordered_map>

#include "mpi_shim/channel/core/counters.h"
#include "mpi_shim/channel/core/types.h"
#include "mpi_shim/channel/core/wire.h"

namespace ewarp::channel {

// How far ahead of the next message an announcement may be, and how many a receiver may have out per peer.
inline constexpr std::uint64_t kWindow = 64;
inline constexpr std::uint32_t kMostAnnounced = 1024;

struct Announcement {
  std::uint64_t number = 0;
  Tag tag = 0;  // as the receiver believes that the message has it
  std::uint64_t capacity = 0;
  wire::Remote remote;
  std::uint32_t id = 0;  // the immediate that says "written"
};

// Entries by tag; at the bound the one not used for longest goes.
template <class Entry>
class TagTable {
 public:
  explicit TagTable(std::size_t limit) : limit_(limit == 0 ? 1 : limit) {}

  // Null if the tag is not counted. What was found counts as used.
  Entry* find(Tag tag) {
    const auto at = index_.find(tag);
    if (at == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, at->second);
    return &entries_.front().second;
  }
  // Requires: find(tag) is null, and the table is not full().
  // Without memory nothing has changed.
  Entry& add(Tag tag, Entry entry) {
    assert(!full() && !index_.contains(tag));
    std::list<std::pair<Tag, Entry>> added;
    added.emplace_front(tag, std::move(entry));
    index_.emplace(tag, added.begin());
    entries_.splice(entries_.begin(), added);
    return entries_.front().second;
  }
  bool full() const { return index_.size() >= limit_; }
  // Requires: full().
  Entry forget() {
    assert(full() && entries_.size() == index_.size());
    Entry oldest = std::move(entries_.back().second);
    index_.erase(entries_.back().first);
    entries_.pop_back();
    return oldest;
  }
  // Gives its memory back.
  void clear() {
    entries_.clear();
    index_ = {};
  }

 private:
  std::list<std::pair<Tag, Entry>> entries_;  // the last used first
  std::unordered_map<Tag, typename std::list<std::pair<Tag, Entry>>::iterator> index_;
  std::size_t limit_;
};

// The sender's side, for one peer.
class SentNumbers {
 public:
  SentNumbers(std::size_t limit, Counters& counters) : tags_(limit), counters_(counters) {}

  struct Turn {
    std::uint64_t number;
    std::optional<Announcement> announcement;  // of this number; it is used now or never
  };
  // The announcement that take() would give; null if there is none.
  const Announcement* peek(Tag tag);
  // The next message of this tag. Announcements of earlier ones are gone by then.
  Turn take(Tag tag);

  enum class Verdict { stored, old, violation };
  // An announcement for which no message waits.
  Verdict store(Tag tag, const Announcement& a);
  void retract(Tag tag);

  // Where tags that were never used start. Grows.
  std::uint64_t floor() const { return floor_; }
  std::size_t stored() const { return stored_; }
  // The peer is gone: no tag is counted any more.
  void clear() {
    tags_.clear();
    stored_ = 0;
  }

 private:
  struct Entry {
    std::uint64_t next = 0;
    std::deque<Announcement> announced;  // numbers rise
  };
  Entry& entry(Tag tag);
  void drop(Entry& e, Count why);

  TagTable<Entry> tags_;
  Counters& counters_;
  std::uint64_t floor_ = 0;
  std::size_t stored_ = 0;
};

// Whether announcing pays, of what became of the last announcements; or, while it is stopped, of what would have. What
// would have is a guess: each time that announcing was resumed in vain the guesses are trusted later.
class Usage {
 public:
  bool announcing() const { return !stopped_; }
  // used: the message came, or would have come, into the announced buffer.
  void record(bool used, unsigned percent);

 private:
  static constexpr unsigned kLongest = 16, kFewest = 8;  // results that are remembered; needed for a change
  static constexpr unsigned kLongestPause = 4096;
  std::uint32_t results_ = 0;
  unsigned known_ = 0;
  unsigned pause_ = 0, left_ = 0;  // guesses that are passed over: the next time, now
  bool stopped_ = false;
};

// The receiver's side, for one peer.
class ArrivedNumbers {
 public:
  ArrivedNumbers(std::size_t limit, Counters& counters) : tags_(limit), counters_(counters) {}

  // A message has come. False: its number had come before, which no correct peer lets happen. Without memory its tag is
  // forgotten.
  bool arrived(Tag tag, std::uint64_t number);
  // The number of the tag's next message, if it is known.
  std::optional<std::uint64_t> next(Tag tag);
  void on_floor(std::uint64_t floor) { floor_ = floor; }
  // Null if the tag is not counted.
  Usage* usage(Tag tag);
  // The peer is gone: no tag is counted any more.
  void clear() { tags_.clear(); }

 private:
  struct Entry {
    std::uint64_t next = 0;
    Usage usage;
  };
  // Null without memory.
  Entry* add(Tag tag, std::uint64_t next);

  TagTable<Entry> tags_;
  Counters& counters_;
  std::uint64_t floor_ = 0;
  bool forgot_ = false;  // a tag that is not in the table may have been used
};

}  // namespace ewarp::channel
