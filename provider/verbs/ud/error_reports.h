// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// UD_ERR, a datagram's Terminate: tells a sender what was wrong with its datagram, seldom (docs/protocol/datagrams.md
// section 6).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "llp/fault.h"
#include "provider/verbs/ud/port.h"

namespace ewarp::verbs {

// Counts reports within windows of a second. The state is a fixed table: sources that fall on the same entry share its
// limit. Threading: engine held.
class ReportLimit {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr unsigned kPerSource = 10, kInAll = 100;  // in a second
  bool allow(const in6_addr& source, Clock::time_point now);

 private:
  void begin_window(Clock::time_point now);
  Clock::time_point window_{};
  unsigned total_ = 0;
  std::array<std::uint8_t, 256> counts_{};
};

class ErrorReports {
 public:
  // Reports a datagram whose Q_Key was right. msn: the QP's own counter, moved on if it was sent. Not to groups, and
  // not above the limits.
  void send(const DatagramIn& in, std::uint32_t number, const Fault& fault, std::uint32_t& msn);

 private:
  ReportLimit limit_;
};

ErrorReports& error_reports();

}  // namespace ewarp::verbs
