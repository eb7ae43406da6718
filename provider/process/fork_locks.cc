// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/process/fork_locks.h"

#include "llp/annotations.h"
#include "llp/fault_chain.h"
#include "llp/spinlock.h"
#include "provider/base/options.h"
#include "provider/base/stats.h"
#include "provider/verbs/device/context.h"
#include "provider/verbs/memory/memory.h"
#include "provider/verbs/queue_pair.h"

namespace ewarp::verbs {

void take_locks_before_fork() EWARP_NO_LOCK_ANALYSIS {
  options();
  stats::page();
  queue_pairs_before_fork();
  Context::before_fork();
  memory().before_fork();
  llp::fault_signals_before_fork();
}

void release_locks_in_parent() EWARP_NO_LOCK_ANALYSIS {
  llp::fault_signals_after_fork();
  memory().after_fork_parent();
  Context::after_fork();
  queue_pairs_after_fork();
}

void release_locks_in_child() EWARP_NO_LOCK_ANALYSIS {
  llp::Spinlock::after_fork_child();
  llp::fault_signals_after_fork();
  memory().after_fork_child();
  Context::after_fork();
  queue_pairs_after_fork();
}

void forget_locks_in_child() EWARP_NO_LOCK_ANALYSIS {
  llp::Spinlock::after_fork_child();
  llp::fault_signals_forget_in_child();
  Context::forget_in_child();
  queue_pairs_forget_in_child();
}

}  // namespace ewarp::verbs
