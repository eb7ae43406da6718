// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Connections that were accepted and wait: for their MPA Request, or with it for whoever takes it. When all places are
// taken, this says who gives one up, so that no source of connections keeps others out.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

namespace ewarp::verbs {

// The places are shared by the sources that there are, and one that may come. The source with most connections pays:
// with its oldest silent one, else, where it holds more than its share, with its latest complete one. A connection may
// wait for kPatience, or kCompletePatience, before it is anybody's victim. A source that holds more than its share and
// has lost kForgiven within kRemembered has no such time: many hosts may be behind one address, but then they lose few.
// Threading: one thread at a time.
class PendingConnections {
 public:
  using Clock = std::chrono::steady_clock;
  using Number = std::uint64_t;                  // in the order of accept()
  using Address = std::array<std::uint8_t, 16>;  // IPv6, or IPv4-mapped; llp::source_of() says who is one source
  // A Request follows the connection by a round trip, and its sender may be busy.
  static constexpr auto kPatience = std::chrono::seconds(1);
  // A program may be busy for longer before it accepts, as when all ranks of a job start.
  static constexpr auto kCompletePatience = std::chrono::seconds(5);
  static constexpr unsigned kForgiven = 256;
  static constexpr auto kRemembered = std::chrono::seconds(10);

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
  void evict(Number number, Clock::time_point now);
  // When there will be a victim, if nothing else happens; nothing: never. Requires: there is none now.
  std::optional<Clock::time_point> next_victim_at(Clock::time_point now) const;

  // Of those that are complete: the oldest of the source that was served least since something of it waits.
  std::optional<Number> next_complete() const;
  // It is taken: removes it.
  void serve(Number number);

 private:
  struct Source {
    std::set<Number> silent, complete;
    unsigned lost = 0;  // since `losing_since`
    Clock::time_point losing_since{};
    std::uint64_t served = 0;
    std::size_t size() const { return silent.size() + complete.size(); }
  };
  struct Entry {
    Address source;
    Clock::time_point since;
  };
  // One at least: who waits with a single complete Request keeps it.
  std::size_t share() const { return std::max<std::size_t>(1, places_ / (sources_.size() + 1)); }
  bool is_greedy(const Source& s) const { return s.size() > share(); }
  bool is_worn_out(const Source& s, Clock::time_point now) const {
    return is_greedy(s) && s.lost >= kForgiven && now - s.losing_since < kRemembered;
  }
  // That of a silent one, or of one that is complete.
  Clock::time_point ripe_at(Number number, Clock::duration patience) const {
    return entries_.at(number).since + patience;
  }
  std::optional<Number> victim_of(const Source& s, Clock::time_point now) const;

  std::size_t places_;
  std::map<Address, Source> sources_;  // those of which something waits
  std::unordered_map<Number, Entry> entries_;
};

}  // namespace ewarp::verbs
