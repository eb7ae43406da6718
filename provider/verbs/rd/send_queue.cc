// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/rd/send_queue.h"

#include <bit>
#include <cassert>
#include <cstring>
#include <new>

namespace ewarp::verbs {

bool RdSendQueue::create(std::uint32_t depth, std::uint32_t sges, std::uint32_t inline_octets) {
  if (!slots_.create(depth, sges, inline_octets)) return false;
  depth = slots_.depth();
  if (!posted_.create(depth, 1, 0) || !free_.create(depth, 1, 0)) return false;
  for (std::uint32_t i = 0; i < depth; ++i) free_.entry(i) = i;
  free_.publish(depth);
  try {
    lines_.assign(std::bit_ceil(depth), kNone);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

// The number that leads to the line's first: a bucket's, or the one in the line before it; kNone is in it if there is
// no such line.
std::uint32_t* RdSendQueue::line_of(const llp::rd::Key& peer) {
  std::uint64_t half[2];
  std::memcpy(half, peer.ip.data(), sizeof half);
  std::uint64_t h = (half[0] ^ std::uint64_t{peer.remote_qpn} << 32 ^ peer.qkey) * 0x9e3779b97f4a7c15u;
  h = (h ^ h >> 32 ^ half[1]) * 0x9e3779b97f4a7c15u;
  assert(std::has_single_bit(lines_.size()));
  std::uint32_t* at = &lines_[(h ^ h >> 32) & (lines_.size() - 1)];
  while (*at != kNone && !(this->at(*at).peer == peer)) at = &this->at(*at).chain;
  return at;
}

RdSend* RdSendQueue::arrange() {
  const std::uint64_t head = posted_.head();
  if (head == posted_.tail()) return nullptr;
  const std::uint32_t slot = posted_.entry(head);
  posted_.retire(head + 1);
  RdSend& s = at(slot);
  s.behind = s.chain = s.newer = kNone;
  s.last = slot;
  s.older = newest_;
  (newest_ == kNone ? oldest_ : at(newest_).newer) = slot;
  newest_ = slot;
  std::uint32_t* line = line_of(s.peer);
  if (*line == kNone) {
    *line = slot;
  } else {
    RdSend& front = at(*line);
    at(front.last).behind = slot;
    front.last = slot;
  }
  return &s;
}

RdSend* RdSendQueue::first(const llp::rd::Key& peer) {
  const std::uint32_t slot = *line_of(peer);
  return slot == kNone ? nullptr : &at(slot);
}

void RdSendQueue::start(const llp::rd::Key& peer) {
  std::uint32_t* line = line_of(peer);
  const RdSend& s = at(*line);
  if (s.behind == kNone) {
    *line = s.chain;
    return;
  }
  at(s.behind).last = s.last;
  at(s.behind).chain = s.chain;
  *line = s.behind;
}

void RdSendQueue::release(RdSend& s) {
  (s.older == kNone ? oldest_ : at(s.older).newer) = s.newer;
  (s.newer == kNone ? newest_ : at(s.newer).older) = s.older;
  const std::uint64_t tail = free_.tail();
  free_.entry(tail) = slot_of(s);
  free_.publish(tail + 1);
}

void RdSendQueue::forget_lines() {
  lines_.assign(lines_.size(), kNone);
}

}  // namespace ewarp::verbs
