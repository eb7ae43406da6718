// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An opened device, and the small objects that live in it.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <optional>
#include <unordered_map>

#include "provider/verbs/device/device.h"
#include "provider/verbs/device/event_channel.h"

namespace ewarp::verbs {

class Engine;

// ibv_open_device(). async: where asynchronous events go (16-octet records), may be null in tests.
class Context {
 public:
  Context(Device& device, std::shared_ptr<EventChannel> async) : device_(device), async_(std::move(async)) {}
  Device& device() const { return device_; }
  // That serves the objects of this context: they ask it of nobody else.
  Engine& engine() const;
  // Raises an asynchronous event. handle: what ibv_get_async_event() puts in event.element (the ibv_qp, ibv_cq, ...
  // pointer; the port number for port events).
  void raise(ibv_event_type type, std::uint64_t handle);
  // Forgets the events of this handle that nobody has read; returns how many.
  std::size_t purge_async(std::uint64_t handle);
  // For an object that is being destroyed: forgets its unread events; returns how many the application has read, so
  // that destruction can wait until that many were acknowledged. Nothing: a forked child, which was told of none.
  // Requires: nothing is raised for this handle any more.
  std::optional<std::uint64_t> retire_async(std::uint64_t handle);

  // Around fork(), in the thread that calls it.
  static void before_fork();
  static void after_fork();
  static void forget_in_child();  // instead, where before_fork() was not called

 private:
  Device& device_;
  std::shared_ptr<EventChannel> async_;
  // Events per object that were not taken back. Under one mutex for all contexts: such events are rare.
  std::unordered_map<std::uint64_t, std::uint64_t> raised_;
};

struct Pd {
  explicit Pd(Context& c) : context(c) {}
  Context& context;
  std::atomic<int> users{0};  // QPs, MRs, ... ; dealloc is EBUSY while not 0
};

}  // namespace ewarp::verbs
