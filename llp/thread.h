// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Threads of our own. All signals belong to the application's threads; only those that an instruction causes (a guarded
// copy that meets an unmapped page) come to the thread that caused them, and must not be blocked there.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace ewarp::llp {

// In its scope the calling thread takes no signals but SIGSEGV, SIGBUS, SIGFPE and SIGILL, blocked before or not; at
// its end the mask is as it was. Threads made within inherit the mask.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

using ThreadMain = void* (*)(void* argument);

// A thread with BlockedSignals for its mask runs main(argument). 0, or the error (EAGAIN: no more threads allowed, or
// no memory); then there is no thread, and nothing has changed. They neither throw nor allocate memory from the heap
// themselves.
[[nodiscard]] int start_detached(ThreadMain main, void* argument) noexcept;
// *thread is written on success only; the caller joins it.
[[nodiscard]] int start_joinable(ThreadMain main, void* argument, pthread_t* thread) noexcept;

}  // namespace ewarp::llp
