// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/device/known_interfaces.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "provider/base/log.h"
#include "provider/engine/reactor.h"
#include "provider/verbs/device/device.h"
#include "provider/verbs/device/port_monitor.h"

namespace ewarp::verbs {
namespace {

bool on_background(KnownInterfaces::Clock::time_point when, std::function<void()> task) {
  if (forked_child()) return false;
  reactor().add_timer(when, std::move(task));
  return true;
}

}  // namespace

KnownInterfaces& known_interfaces() {
  // Outlives the background thread.
  static auto* known = new KnownInterfaces(&llp::look_at_interfaces, &on_background, [] { port_monitor().compare(); });
  return *known;
}

void KnownInterfaces::take(List now) {
  const auto before = list();
  if (before != nullptr && *before == now) return;
  for (Device* device : devices()) device->follow(now);
  std::shared_ptr<const List> fresh = std::make_shared<List>(std::move(now));
  {
    const llp::Guard guard(list_lock_);
    list_.swap(fresh);
  }
  version_.fetch_add(1, std::memory_order_release);
}

bool KnownInterfaces::look() {
  const llp::Guard guard(looking_);
  bool done = false;
  try {
    if (auto now = look_()) {
      take(std::move(*now));
      done = true;
    }
  } catch (const std::bad_alloc&) {  // the background thread has nobody to tell
  }
  looked_at_.store(Clock::now(), std::memory_order_relaxed);
  if (done) {
    pause_.store(kLookAgain, std::memory_order_relaxed);
  } else {
    look_soon();
    pause_.store(std::min(2 * pause_.load(std::memory_order_relaxed), kLongestPause), std::memory_order_relaxed);
  }
  return done;
}

void KnownInterfaces::look_unless_recent() {
  if (list() == nullptr || Clock::now() - looked_at_.load(std::memory_order_relaxed) >= kLookAgain) look();
}

void KnownInterfaces::look_soon() {
  if (asked_.load(std::memory_order_relaxed) || asked_.exchange(true, std::memory_order_relaxed)) return;
  const auto when =
      std::max(Clock::now(), looked_at_.load(std::memory_order_relaxed) + pause_.load(std::memory_order_relaxed));
  bool will = false;
  try {
    will = later_(when, [this] {
      asked_.store(false, std::memory_order_relaxed);
      if (look() && after_ != nullptr) after_();
    });
  } catch (const std::exception& e) {
    log::debug("the interfaces cannot be looked at: {}", e.what());
  }
  if (!will) asked_.store(false, std::memory_order_relaxed);
}

}  // namespace ewarp::verbs
