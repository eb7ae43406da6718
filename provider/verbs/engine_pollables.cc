// The engine's sockets that are not streams.
#include <algorithm>

#include "provider/verbs/engine.h"

namespace ewarp::verbs {

void Engine::add(const std::shared_ptr<Pollable>& p) {
  start_thread();
  pollables_.push_back(p);
  activate(*p);
  rearm_ = true;
  if (asleep_.load()) watcher_->wake();
}

void Engine::remove(Pollable& p) {
  std::erase(active_pollables_, &p);
  std::erase_if(pollables_, [&](const auto& each) { return each.get() == &p; });
  p.active_ = false;
  p.armed_ = 0;
  unwatch(p.fd());
}

void Engine::activate(Pollable& p) {
  if (!p.active_) active_pollables_.push_back(&p);
  p.active_ = true;
  p.last_tick_ = tick();
}

void Engine::wait_writable(Pollable& p) {
  activate(p);
  if ((p.armed_ & POLLOUT) == 0) rearm();
}

// The next pass begins behind the one that was first in this one.
bool Engine::pass_pollables() {
  bool any = false;
  const std::size_t n = active_pollables_.size();
  for (std::size_t i = 0; i < n; ++i) {
    Pollable& p = *active_pollables_[(pollable_cursor_ + i) % n];
    if (!p.turn()) continue;
    p.last_tick_ = tick();
    any = true;
  }
  ++pollable_cursor_;
  return any;
}

void Engine::arm_pollables() {
  for (Pollable* p : active_pollables_) {
    const std::uint32_t events = POLLIN | (p->wants_to_write() ? POLLOUT : 0U);
    if (p->armed_ != events) arm(*p, events);
  }
}

// True: some have left.
bool Engine::demote_pollables() {
  return std::erase_if(active_pollables_, [this](Pollable* p) {
           if (tick() - p->last_tick_ < kSilentTicks || p->wants_to_write()) return false;
           if (p->armed_ == 0) arm(*p, POLLIN);
           p->active_ = false;
           return true;
         }) > 0;
}

// Background thread, engine held.
void Engine::arm(Pollable& p, std::uint32_t events) {
  const std::lock_guard guard(mutex_);
  // An unwatch() of its former life must not come after.
  if (std::erase_if(watch_ops_, [&](const WatchOp& op) { return op.fd == p.fd(); }) > 0) watcher_->disarm(p.fd());
  Watch& w = watches_[p.fd()];
  tokens_.erase(w.token);
  w = Watch{next_id_++, nullptr, nullptr};
  w.on_ready = [this, weak = p.weak_from_this()](std::uint32_t) {
    const auto alive = weak.lock();
    if (alive == nullptr) return;
    enter();
    // Removed meanwhile, it is watched by nobody.
    if (std::any_of(pollables_.begin(), pollables_.end(), [&](const auto& each) { return each == alive; })) {
      alive->armed_ = 0;
      activate(*alive);
    }
    leave();
  };
  tokens_[w.token] = p.fd();
  p.armed_ = events;
  watcher_->arm(p.fd(), events, w.token);
}

void Engine::close_pollables_in_child() {
  for (const auto& p : pollables_) p->close_in_child();
}

}  // namespace ewarp::verbs
