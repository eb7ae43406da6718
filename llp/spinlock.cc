// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/spinlock.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace ewarp::llp {

void Backoff::let_others_run() {
  constexpr unsigned kYields = 8;
  constexpr long kFirst = 20'000, kLongest = 1'000'000;  // ns
  const int saved_errno = errno;
  if (const unsigned yields = turns_ - kSpins; yields <= kYields) {
    sched_yield();
  } else {
    const timespec pause{0, std::min(kFirst << std::min(yields - kYields - 1, 6u), kLongest)};
    syscall(SYS_nanosleep, &pause, nullptr);
  }
  errno = saved_errno;
}

}  // namespace ewarp::llp
