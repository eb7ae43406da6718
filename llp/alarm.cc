// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/alarm.h"

#include <sys/timerfd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "llp/fd.h"

namespace ewarp::llp {

int Alarm::open() {
  assert(!is_open());
  fd_ = make_high_fd([] { return ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC); });
  return fd_ < 0 ? errno : 0;
}

bool Alarm::set(Clock::time_point when) {
  // Zero would clear it; what lies in the past is due at once.
  const auto at = std::max<std::chrono::nanoseconds>(when.time_since_epoch(), std::chrono::nanoseconds(1));
  itimerspec spec{};
  spec.it_value.tv_sec = at.count() / 1'000'000'000;
  spec.it_value.tv_nsec = at.count() % 1'000'000'000;
  return is_open() && ::timerfd_settime(fd_, TFD_TIMER_ABSTIME, &spec, nullptr) == 0;
}

void Alarm::clear() {
  const itimerspec spec{};
  if (is_open()) ::timerfd_settime(fd_, 0, &spec, nullptr);
}

void Alarm::close() {
  if (is_open()) close_fd(std::exchange(fd_, -1));
}

}  // namespace ewarp::llp
