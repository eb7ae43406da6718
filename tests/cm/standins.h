// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Stand-ins for the verbs engine under the connection manager: a reactor on poll(), queue pairs that take a stream and
// only count what arrives on it, the loopback device.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "mpa/startup.h"

namespace ewarp::test {

struct QpView {
  bool attached = false;
  bool ended = false;
  bool lets_sends_wait = false;
  int abort_calls = 0, graceful_calls = 0;
  mpa::StreamParams params;
  std::size_t received = 0;  // octets after the start-up frames
};

// Makes an RC queue pair that does not complain; returns its number.
std::uint32_t make_qp();
void destroy_qp(std::uint32_t number);
QpView view_qp(std::uint32_t number);
// ibv_modify_qp() to RESET: it may be connected once more.
void reset_qp(std::uint32_t number);
// The next attach() of this QP fails with `error`.
void refuse_attach(std::uint32_t number, int error);
void set_read_limits(std::uint16_t ird, std::uint16_t ord);

std::uint64_t failures_counted();
std::uint64_t loopback_guid();

// Waits until the reactor has run everything posted before, and nothing is ready.
void settle();

// The reactor runs nothing while this lives. What gets ready meanwhile it reports in the order of falling descriptors:
// no order is promised, and this is not that of any program.
class PausedReactor {
 public:
  PausedReactor();
  ~PausedReactor();
  PausedReactor(const PausedReactor&) = delete;
  PausedReactor& operator=(const PausedReactor&) = delete;

 private:
  std::promise<void> resume_;
};

}  // namespace ewarp::test
