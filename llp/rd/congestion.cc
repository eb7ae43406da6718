// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/rd/congestion.h"

#include <algorithm>
#include <cassert>

namespace ewarp::llp::rd {
namespace {

// Far above what two windows of 1024 segments can hold.
constexpr std::uint32_t kLargest = 1u << 28;

std::uint32_t initial_window(const Config& config, std::uint32_t segment) {
  return std::max(2 * segment, std::min(config.initial_segments * segment, config.initial_octets));
}

}  // namespace

void Congestion::start(const Config& config, std::uint32_t segment) {
  *this = Congestion{};
  window_ = initial_window(config, segment);
}

void Congestion::acknowledged(std::uint32_t octets, std::uint32_t in_flight, std::uint32_t segment) {
  assert(window_ > 0);  // start() was called
  if (in_flight < window_ / 2) return;
  if (window_ < threshold_) {
    window_ += std::min(octets, 2 * segment);
  } else {
    credit_ += octets;
    if (credit_ < window_) return;
    credit_ -= window_;
    window_ += segment;
  }
  window_ = std::min(window_, kLargest);
}

void Congestion::loss(std::uint32_t in_flight, std::uint32_t segment) {
  assert(segment > 0);
  threshold_ = window_ = std::max(in_flight / 2, 2 * segment);
  credit_ = 0;
}

void Congestion::timeout(std::uint32_t in_flight, std::uint32_t segment) {
  threshold_ = std::max(in_flight / 2, 2 * segment);
  window_ = segment;
  credit_ = 0;
}

void Congestion::idle(const Config& config, std::uint32_t segment) {
  window_ = std::min(window_, initial_window(config, segment));
}

}  // namespace ewarp::llp::rd
