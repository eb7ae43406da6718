// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/device/known_interfaces.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "provider/base/log.h"
#include "provider/engine/reactor.h"
#include "provider/verbs/device/device.h"

namespace ewarp::verbs {
namespace {

bool on_background(KnownInterfaces::Clock::time_point when, std::function<void()> task) {
  if (forked_child()) return false;
  reactor().add_timer(when, std::move(task));
  return true;
}

}  // namespace

KnownInterfaces& known_interfaces() {
  static auto* known = new KnownInterfaces(&llp::look_at_interfaces, &on_background);  // outlives the background thread
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

void KnownInterfaces::look() {
  const llp::Guard guard(looking_);
  auto now = look_();
  looked_at_.store(Clock::now(), std::memory_order_relaxed);
  if (now)
    take(std::move(*now));
  else
    look_soon();
}

void KnownInterfaces::look_unless_recent() {
  if (list() == nullptr || Clock::now() - looked_at_.load(std::memory_order_relaxed) >= kLookAgain) look();
}

void KnownInterfaces::look_soon() {
  if (asked_.load(std::memory_order_relaxed) || asked_.exchange(true, std::memory_order_relaxed)) return;
  const auto when = std::max(Clock::now(), looked_at_.load(std::memory_order_relaxed) + kLookAgain);
  bool will = false;
  try {
    will = later_(when, [this] {
      asked_.store(false, std::memory_order_relaxed);
      look();
    });
  } catch (const std::exception& e) {
    log::debug("the interfaces cannot be looked at: {}", e.what());
  }
  if (!will) asked_.store(false, std::memory_order_relaxed);
}

}  // namespace ewarp::verbs
