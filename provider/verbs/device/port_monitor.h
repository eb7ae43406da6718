// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Asynchronous events of the port: PORT_ACTIVE and PORT_ERR follow the link of the interface underneath, GID_CHANGE its
// addresses (ibv_get_async_event(3)).
#pragma once

#include <infiniband/verbs.h>

#include <new>
#include <unordered_map>
#include <vector>

#include "llp/mutex.h"

namespace ewarp::verbs {

class Context;

// known_interfaces() are looked at anew before the ports are.
// Threading: any thread; events are raised on the background thread. Nothing is polled: the kernel tells of changes
// through a route netlink socket. Where a sandbox forbids those, there are no port events.
class PortMonitor {
 public:
  // From here on the context hears of its port.
  void add(Context& context);
  // Not any more; no event is raised after return.
  void remove(Context& context);
  // The interfaces are known anew: events for what has changed. Background thread.
  void compare();
  int fd() const { return fd_; }

  // fork(): the child's copy of the socket is closed with everything else that was watched, and the contexts that it
  // inherited report to the parent.
  void before_fork() EWARP_ACQUIRE(mutex_) { mutex_.lock(); }
  void after_fork_parent() EWARP_RELEASE(mutex_) { mutex_.unlock(); }
  void after_fork_child() EWARP_RELEASE(mutex_) {
    fd_ = -1;
    ports_.clear();
    mutex_.unlock();
  }
  // Forked inside the engine's holder, where nothing was locked before: a thread may have been at work on the ports.
  void forget_in_child() EWARP_NO_LOCK_ANALYSIS {
    mutex_.renew_in_child();
    fd_ = -1;
    new (&ports_) decltype(ports_);
  }

 private:
  struct Port {
    bool active = false;
    std::vector<ibv_gid> gids;
    bool operator==(const Port& other) const;
  };
  static Port look(const Context& context);
  bool open() EWARP_REQUIRES(mutex_);
  void watch();
  void changed();
  void compare_now() EWARP_REQUIRES(mutex_);

  llp::Mutex mutex_;
  std::unordered_map<Context*, Port> ports_ EWARP_GUARDED_BY(mutex_);
  int fd_ = -1;
};

PortMonitor& port_monitor();

}  // namespace ewarp::verbs
