// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// fork() while other threads hold locks: the child has only the thread that called it, so whatever it may lock is taken
// before, or forgets its holder.
//
// Taken here, in this order, behind the engine, the port monitor, the known interfaces, the QP numbers and the engine's
// inbox; no thread that holds one of these asks for another of them, or for one of those before:
//
//   what is made at first use (a child would wait for the thread that was making it), the registry of queue pairs,
//   unread asynchronous events (Context), memory windows, memory regions, the place in front of fault handlers.
//
// Not taken, because there is one for each object, or because the lock is held in system calls:
//
//   Spinlocks (completion queues, work queues): in the child a holder from before the fork holds nothing.
//   Event channels, rdma_cm and the page of counters: the child makes them anew, or closes them (EventChannel::
//     close_in_child(), cm::in_child(), stats::forget_in_child()).
//   FdTable: by the host's own handlers, which run within ours.
//   ibv_start_poll() and ibv_wr_start() keep theirs until the program ends them, which is the program's business.
#pragma once

namespace ewarp::verbs {

// Requires: the engine is held by this thread.
void take_locks_before_fork();
void release_locks_in_parent();
// Requires: no other thread runs.
void release_locks_in_child();
// The same where none were taken, because a signal handler that interrupted a pass forks: what they guard may be half
// changed, but nobody waits for ever.
void forget_locks_in_child();

}  // namespace ewarp::verbs
