// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rdmap/direct.h"

#include <algorithm>

#include "mpa/framing.h"

namespace ewarp::rdmap {
namespace {

constexpr std::size_t kStoredLast = 64;  // a cache line

}  // namespace

Octets DirectPayload::keep_header(Octets header) {
  assert(idle() && header.size() <= header_.size());
  std::copy(header.begin(), header.end(), header_.begin());
  return Octets(header_).first(header.size());
}

void DirectPayload::begin(const Segment& segment, std::size_t present, Octets staged) {
  assert(present < segment.payload && present <= staged.size());
  const std::size_t missing = segment.payload - present;
  const bool watched = segment.last && segment.kind != Segment::Kind::send;
  payload_ = segment.payload;
  kept_ = watched ? std::min(missing, kStoredLast) : 0;
  left_ = missing - kept_;
  skip_ = mpa::pad_octets(segment.ulpdu) + mpa::kCrcField;
  pieces_ = slice(segment.target, present, left_);
  first_ = 0;
  sum_.reset();
  if (with_crc_) sum_.update(staged);
  enter(State::payload);
  assert(left_ > 0 && (!with_crc_ || pieces_.count == 1));
}

void DirectPayload::placed(Octets octets) {
  if (with_crc_) sum_.update(octets);
  advance(octets.size());
}

bool DirectPayload::arrived(std::size_t octets) {
  if (with_crc_) {
    assert(octets <= extents()[0].length);
    if (!sum_.read(extents()[0].address, octets)) return false;
  }
  advance(octets);
  return true;
}

void DirectPayload::advance(std::size_t octets) {
  assert(state_ == State::payload && octets <= left_);
  left_ -= octets;
  while (octets > 0) {
    assert(first_ < pieces_.count);
    llp::Extent& e = pieces_.items[first_];
    const std::size_t n = std::min(octets, e.length);
    e.address += n;
    e.length -= n;
    octets -= n;
    if (e.length == 0) ++first_;
  }
  if (left_ > 0) return;
  assert(first_ == pieces_.count);
  enter(State::trailer);
}

bool DirectPayload::finish(Octets trailer) {
  assert(state_ == State::trailer && trailer.size() == kept_ + skip_);
  enter(State::idle);
  if (!with_crc_) return true;
  sum_.update(trailer.first(trailer.size() - mpa::kCrcField));
  return sum_.matches(trailer.last<mpa::kCrcField>());
}

void DirectPayload::stop() {
  pieces_.clear();
  first_ = left_ = 0;
  enter(State::idle);
}

}  // namespace ewarp::rdmap
