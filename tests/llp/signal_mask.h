// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which signals a thread blocks.
#pragma once

#include <signal.h>

namespace ewarp::test {

// Of the calling thread.
inline sigset_t mask_now() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return mask;
}

inline bool same(const sigset_t& a, const sigset_t& b) {
  for (int signal = 1; signal <= SIGRTMAX; ++signal)
    if (sigismember(&a, signal) != sigismember(&b, signal)) return false;
  return true;
}

}  // namespace ewarp::test
