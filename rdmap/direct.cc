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
  segment_ = &segment;
  sum_.reset();
  if (with_crc_) sum_.update(staged);
  enter(State::payload);
  assert(left_ > 0 && (!with_crc_ || segment.target.count == 1));
}

void DirectPayload::placed(Octets octets) {
  if (with_crc_) sum_.update(octets);
  advance(octets.size());
}

bool DirectPayload::arrived(std::size_t octets) {
  if (with_crc_) {
    const ExtentList at = extents();
    assert(octets <= at.front().length);
    if (!sum_.read(at.front().address, octets)) return false;
  }
  advance(octets);
  return true;
}

void DirectPayload::advance(std::size_t octets) {
  assert(state_ == State::payload && octets <= left_);
  left_ -= octets;
  if (left_ == 0) enter(State::trailer);
}

bool DirectPayload::finish(Octets trailer) {
  assert(state_ == State::trailer && trailer.size() == kept_ + skip_);
  enter(State::idle);
  if (!with_crc_) return true;
  sum_.update(trailer.first(trailer.size() - mpa::kCrcField));
  return sum_.matches(trailer.last<mpa::kCrcField>());
}

void DirectPayload::stop() {
  left_ = 0;
  enter(State::idle);
}

}  // namespace ewarp::rdmap
