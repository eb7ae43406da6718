// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The one engine of this process, and what is done with it and everything beside it when the process forks or ends.
#include <pthread.h>

#include <atomic>
#include <cstdlib>

#include "llp/annotations.h"
#include "provider/base/stats.h"
#include "provider/engine/engine.h"
#include "provider/engine/reactor.h"
#include "provider/process/fork_locks.h"
#include "provider/startup/bring_up.h"
#include "provider/verbs/device/context.h"
#include "provider/verbs/device/known_interfaces.h"
#include "provider/verbs/device/port_monitor.h"
#include "provider/verbs/qp_numbers.h"
#include "provider/verbs/ud/multicast.h"
#include "provider/verbs/ud/port.h"

namespace ewarp::verbs {
namespace {

// A consistent state for the child. Locks in their order: the engine, then those whose holders use its inbox, then the
// inbox, then the rest.
void before_fork() EWARP_NO_LOCK_ANALYSIS {
  Engine& e = engine();
  if (!e.hold_for_fork()) return;
  port_monitor().before_fork();
  known_interfaces().before_fork();
  qp_numbers().before_fork();
  e.lock_inbox();
  take_locks_before_fork();
}

void after_fork_parent() EWARP_NO_LOCK_ANALYSIS {
  Engine& e = engine();
  if (e.forked_inside()) return;
  release_locks_in_parent();
  e.unlock_inbox();
  qp_numbers().after_fork_parent();
  known_interfaces().after_fork_parent();
  port_monitor().after_fork_parent();
  e.after_fork_parent();
}

// The child has none of the parent's threads; what it inherited is closed, so that a peer sees the parent's end.
void after_fork_child() EWARP_NO_LOCK_ANALYSIS {
  Engine& e = engine();
  if (e.forked_inside()) {
    e.abandon_in_child();
    forget_locks_in_child();
    known_interfaces().forget_in_child();
    port_monitor().forget_in_child();
    stats::forget_in_child();
    return;
  }
  release_locks_in_child();
  e.close_watched_in_child();
  DatagramPort::forget_in_child();
  forget_groups_in_child();
  Socket::close_all_in_child();
  forget_arrivals_in_child();
  qp_numbers().after_fork_child();
  e.begin_in_child(port_monitor().fd());
  stats::forget_in_child();
  e.unlock_inbox();
  known_interfaces().after_fork_child();
  port_monitor().after_fork_child();
  e.let_go_in_child();
}

std::atomic<Engine*> the_engine{nullptr};

// Known last: a child of a fork() that the handlers have not seen makes its own.
void make_engine() {
  auto* e = new Engine;  // outlives every thread
  pthread_atfork(before_fork, after_fork_parent, after_fork_child);
  std::atexit([] { engine().at_exit(DatagramPort::leave_peers); });
  the_engine.store(e, std::memory_order_release);
}

}  // namespace

Engine& engine() {
  // By pthread_once(): what a thread of the parent had begun, a child begins anew. The guard of a static variable would
  // be held there for ever.
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (the_engine.load(std::memory_order_acquire) == nullptr) pthread_once(&once, make_engine);
  return *the_engine.load(std::memory_order_acquire);
}

Reactor& reactor() {
  return engine();
}

// One for all.
Engine& Context::engine() const {
  return verbs::engine();
}

bool forked_child() {
  return engine().forked();
}

}  // namespace ewarp::verbs
