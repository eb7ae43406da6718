// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/rd/lane.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace ewarp::llp::rd {
namespace {

// Evidence this many PSNs further on is not mere reordering (RFC 9002 section 6.1.1).
constexpr std::size_t kReordering = 3;

}  // namespace

void SendLane::push(Sent sent) {
  assert(!sent.lost && !sent.sacked && sent_.size() < kMaxWindow);
  in_flight_ += sent.octets;
  sent_.push_back(sent);
}

void SendLane::note(const Sent& s, Progress& progress) const {
  progress.any = true;
  progress.octets += s.octets;
  if (s.order <= progress.newest) return;
  progress.newest = s.order;
  progress.sample = s.again ? std::nullopt : std::optional(s.at);
}

Sent SendLane::pop(Progress& progress) {
  Sent s = sent_.front();
  sent_.pop_front();
  if (s.sacked) {
    --sacked_;
    progress.any = true;
  } else {
    note(s, progress);
    assert(s.lost ? lost_ > 0 : in_flight_ >= s.octets);
    if (s.lost)
      --lost_;
    else
      in_flight_ -= s.octets;
  }
  assert(lost_ + sacked_ <= sent_.size());
  return s;
}

void SendLane::sack(std::size_t i, Progress& progress) {
  Sent& s = sent_.at(i);
  if (s.sacked) return;
  note(s, progress);
  settle(i);
}

void SendLane::settle(std::size_t i) {
  Sent& s = sent_.at(i);
  if (s.sacked) return;
  assert(s.lost ? lost_ > 0 : in_flight_ >= s.octets);
  if (s.lost)
    --lost_;
  else
    in_flight_ -= s.octets;
  s.lost = false;
  s.sacked = true;
  ++sacked_;
}

void SendLane::lose(std::size_t i) {
  Sent& s = sent_.at(i);
  if (s.lost) return;
  if (s.sacked) {
    s.sacked = false;
    --sacked_;
  } else {
    assert(in_flight_ >= s.octets);
    in_flight_ -= s.octets;
  }
  s.lost = true;
  ++lost_;
}

std::uint64_t SendLane::detect_losses() {
  if (sacked_ == 0) return 0;
  std::uint64_t evidence = 0, newest = 0;  // evidence: newest order SACKed at least kReordering further on
  for (std::size_t i = sent_.size(); i-- > 0;) {
    if (i + kReordering < sent_.size() && sent_.at(i + kReordering).sacked)
      evidence = std::max(evidence, sent_.at(i + kReordering).order);
    const Sent& s = sent_.at(i);
    if (s.sacked || s.lost || s.order >= evidence) continue;
    newest = std::max(newest, s.order);
    lose(i);
  }
  return newest;
}

void SendLane::lose_all() {
  for (std::size_t i = 0; i < sent_.size(); ++i)
    if (i == 0 || !sent_.at(i).sacked) lose(i);
}

std::size_t SendLane::first_lost() {
  assert(has_lost());
  std::size_t i = 0;
  while (!sent_.at(i).lost) ++i;
  return i;
}

void SendLane::resent(std::size_t i, std::uint64_t order) {
  Sent& s = sent_.at(i);
  assert(s.lost && !s.sacked && order > s.order);
  s.lost = false;
  s.again = true;
  s.order = order;
  --lost_;
  in_flight_ += s.octets;
}

void SendLane::fail_message(std::uint64_t message) {
  for (std::size_t i = 0; i < sent_.size(); ++i)
    if (sent_.at(i).segment.message == message) sent_.at(i).failed = true;
}

std::size_t ReceiveLane::position(std::uint32_t psn) const {
  const auto begin = held_.begin() + static_cast<std::ptrdiff_t>(first_);
  const auto at =
      std::lower_bound(begin, held_.end(), psn, [](const Held& h, std::uint32_t p) { return after(p, h.psn); });
  return at != held_.end() && at->psn == psn ? static_cast<std::size_t>(at - held_.begin()) : held_.size();
}

const Held* ReceiveLane::find(std::uint32_t psn) const {
  const std::size_t i = position(psn);
  return i < held_.size() ? &held_[i] : nullptr;
}

// What the array is to hold when one more comes.
std::size_t ReceiveLane::next_capacity() const {
  if (held_.size() < held_.capacity() || 2 * first_ >= std::max<std::size_t>(held_.size(), 1)) return held_.capacity();
  return std::max<std::size_t>(1, 2 * held_.capacity());
}

void ReceiveLane::make_room() {
  const std::size_t capacity = next_capacity();
  if (held_.size() < held_.capacity()) return;
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(std::exchange(first_, 0)));
  held_.reserve(capacity);
}

void ReceiveLane::insert(Held held) {
  assert(!holds(held.psn));
  assert(empty() || held.psn - held_[first_].psn < kMaxWindow || held_[first_].psn - held.psn < kMaxWindow);
  make_room();
  segments_ += held.cost();
  // Most often it belongs at the end.
  auto at = held_.end();
  while (at != held_.begin() + static_cast<std::ptrdiff_t>(first_) && after(std::prev(at)->psn, held.psn)) --at;
  held_.insert(at, std::move(held));
}

void ReceiveLane::erase(std::uint32_t psn) {
  const std::size_t i = position(psn);
  if (i == held_.size()) return;
  assert(segments_ >= held_[i].cost());
  segments_ -= held_[i].cost();
  if (i == first_) {
    std::vector<std::byte>().swap(held_[first_++].segment);
    if (!empty()) return;
    std::vector<Held>().swap(held_);
    first_ = 0;
  } else {
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

SackWords ReceiveLane::words(std::uint32_t next) const {
  SackWords words;
  for (std::size_t i = first_; i < held_.size(); ++i)
    if (const std::uint32_t k = held_[i].psn - next - 1; held_[i].psn != next && k < kMaxWindow) words.set(k);
  return words;
}

}  // namespace ewarp::llp::rd
