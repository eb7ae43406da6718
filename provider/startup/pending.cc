// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/startup/pending.h"

#include <algorithm>
#include <cassert>

#include "llp/source.h"

namespace ewarp::verbs {

void PendingConnections::add(Number number, const Address& from, Clock::time_point now) {
  const Address source = llp::source_of(from);
  const bool fresh = entries_.emplace(number, Entry{source, now}).second;
  assert(fresh);
  static_cast<void>(fresh);
  sources_[source].silent.insert(number);
}

void PendingConnections::complete(Number number) {
  Source& s = sources_.at(entries_.at(number).source);
  assert(s.silent.contains(number));
  s.silent.erase(number);
  s.complete.insert(number);
}

void PendingConnections::remove(Number number) {
  const auto entry = entries_.find(number);
  if (entry == entries_.end()) return;
  const auto source = sources_.find(entry->second.source);
  source->second.silent.erase(number);
  source->second.complete.erase(number);
  if (source->second.size() == 0) sources_.erase(source);
  entries_.erase(entry);
}

std::optional<PendingConnections::Number> PendingConnections::victim_of(const Source& s, Clock::time_point now) const {
  const bool at_once = is_worn_out(s, now);
  if (!s.silent.empty() && (at_once || ripe_at(*s.silent.begin(), kPatience) <= now)) return *s.silent.begin();
  if (!is_greedy(s)) return std::nullopt;
  const auto latest = std::find_if(s.complete.rbegin(), s.complete.rend(),
                                   [&](Number n) { return at_once || ripe_at(n, kCompletePatience) <= now; });
  return latest == s.complete.rend() ? std::nullopt : std::optional(*latest);
}

std::optional<PendingConnections::Number> PendingConnections::victim(Clock::time_point now) const {
  std::optional<Number> found;
  std::size_t most = 0;
  for (const auto& [address, s] : sources_) {
    if (s.size() <= most) continue;
    const auto candidate = victim_of(s, now);
    if (!candidate) continue;
    found = candidate;
    most = s.size();
  }
  return found;
}

void PendingConnections::evict(Number number, Clock::time_point now) {
  Source& s = sources_.at(entries_.at(number).source);
  if (now - s.losing_since >= kRemembered) {
    s.losing_since = now;
    s.lost = 0;
  }
  ++s.lost;
  remove(number);
}

std::optional<PendingConnections::Clock::time_point> PendingConnections::next_victim_at(Clock::time_point now) const {
  assert(!victim(now));
  static_cast<void>(now);
  std::optional<Clock::time_point> at;
  const auto earlier = [&](Clock::time_point t) { at = at ? std::min(*at, t) : t; };
  for (const auto& [address, s] : sources_) {
    if (!s.silent.empty()) earlier(ripe_at(*s.silent.begin(), kPatience));
    if (!s.complete.empty() && is_greedy(s)) earlier(ripe_at(*s.complete.begin(), kCompletePatience));
  }
  return at;
}

std::optional<PendingConnections::Number> PendingConnections::next_complete() const {
  const Source* best = nullptr;
  for (const auto& [address, s] : sources_) {
    if (s.complete.empty()) continue;
    if (best == nullptr || s.served < best->served ||
        (s.served == best->served && *s.complete.begin() < *best->complete.begin()))
      best = &s;
  }
  return best == nullptr ? std::nullopt : std::optional(*best->complete.begin());
}

void PendingConnections::serve(Number number) {
  ++sources_.at(entries_.at(number).source).served;
  remove(number);
}

}  // namespace ewarp::verbs
