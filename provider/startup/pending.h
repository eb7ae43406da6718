// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Connections that were accepted and wait: for their MPA Request, or with it for whoever takes it. When all places are
// taken, this says who gives one up, so that no source of connections keeps others out.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

namespace ewarp::verbs {

// The source with most connections pays: with its oldest silent one, and where it holds more than half of the places,
// with its latest complete one. A connection may wait for kPatience before it is anybody's victim; a source that has
// lost kForgiven has no such time, until nothing of it waits.
// Threading: one thread at a time.
class PendingConnections {
 public:
  using Clock = std::chrono::steady_clock;
  using Number = std::uint64_t;                  // in the order of accept()
  using Address = std::array<std::uint8_t, 16>;  // IPv6, or IPv4-mapped. All of a /64 counts as one source
  // A Request follows the connection by a round trip, and its sender may be busy.
  static constexpr auto kPatience = std::chrono::seconds(1);
  static constexpr unsigned kForgiven = 64;

  explicit PendingConnections(std::size_t places) : places_(places) {}

  void add(Number number, const Address& from, Clock::time_point now);
  // Its Request is there. Requires: it waits, silent.
  void complete(Number number);
  // It has gone, or been taken. Unknown numbers are ignored.
  void remove(Number number);

  std::size_t size() const { return entries_.size(); }
  bool has_room(Clock::time_point now) const { return size() < places_ || victim(now); }
  // Requires: no place is free. Nothing: all that wait have the right to.
  std::optional<Number> victim(Clock::time_point now) const;
  // Removes a victim.
  void evict(Number number);
  // When there will be a victim, if nothing else happens; nothing: never.
  std::optional<Clock::time_point> next_victim_at() const;

  // Of those that are complete: the oldest of the source that was served least since something of it waits.
  std::optional<Number> next_complete() const;
  // It is taken: removes it.
  void serve(Number number);

 private:
  struct Source {
    std::set<Number> silent, complete;
    unsigned evicted = 0;
    std::uint64_t served = 0;
    std::size_t size() const { return silent.size() + complete.size(); }
  };
  struct Entry {
    Address source;
    Clock::time_point since;
  };
  static Address source_of(Address from);
  bool is_greedy(const Source& s) const { return s.size() > places_ / 2; }
  Clock::time_point ripe_at(const Source& s, Number number) const;
  std::optional<Number> victim_of(const Source& s, Clock::time_point now) const;

  std::size_t places_;
  std::map<Address, Source> sources_;  // those of which something waits
  std::unordered_map<Number, Entry> entries_;
};

}  // namespace ewarp::verbs
