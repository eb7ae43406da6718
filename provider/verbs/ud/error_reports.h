// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// UD_ERR, a datagram's Terminate: tells a sender what was wrong with its datagram, seldom (docs/protocol/datagrams.md
// section 6).
#pragma once

#include <chrono>
#include <cstdint>

#include "llp/fault.h"
#include "llp/random_key.h"
#include "llp/source_limit.h"
#include "provider/verbs/ud/port.h"

namespace ewarp::verbs {

// How many answers strangers get in a second.
class ReportLimit {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr unsigned kPerSource = 10, kInAll = 100;
  bool allow(const in6_addr& source, Clock::time_point now);

 private:
  llp::SourceLimit limit_{llp::random_key(), kPerSource, kInAll};
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
