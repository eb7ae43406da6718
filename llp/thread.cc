// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/thread.h"

#include <initializer_list>

namespace ewarp::llp {

BlockedSignals::BlockedSignals() {
  sigset_t all;
  sigfillset(&all);
  for (const int caused : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, caused);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}

int start_joinable(ThreadMain main, void* argument, pthread_t* thread) noexcept {
  pthread_t made{};  // pthread_create() may write it and fail
  const BlockedSignals blocked;
  const int error = pthread_create(&made, nullptr, main, argument);
  if (error == 0) *thread = made;
  return error;
}

int start_detached(ThreadMain main, void* argument) noexcept {
  pthread_t thread{};
  const int error = start_joinable(main, argument, &thread);
  if (error == 0) pthread_detach(thread);
  return error;
}

}  // namespace ewarp::llp
