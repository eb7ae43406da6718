// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/engine/inbox.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <exception>
#include <new>
#include <utility>

#include "provider/base/log.h"
#include "provider/engine/shortage.h"

namespace ewarp::verbs {

using llp::Guard;

namespace {

// Nothing may come out of it: the thread would end, and the process with it.
template <class F, class... A>
void call(F& task, A... arguments) noexcept {
  try {
    task(arguments...);
  } catch (const std::exception& e) {
    log::error("the background thread could not do what it was asked to: {}", e.what());
  }
}

}  // namespace

void Inbox::add_task(Task task) {
  const Guard guard(mutex_);
  tasks_.push_back(std::move(task));
}

void Inbox::run_tasks() {
  std::vector<Task> tasks;
  {
    const Guard guard(mutex_);
    tasks.swap(tasks_);
  }
  for (Task& t : tasks) call(t);
}

std::uint64_t Inbox::add_timer(Clock::time_point when, Task task, bool* first) {
  const Guard guard(mutex_);
  assert(timers_.size() == timer_times_.size());
  const std::uint64_t id = next_id_++;
  *first = timers_.empty() || when < timers_.begin()->first.first;
  timers_.emplace(std::pair(when, id), std::move(task));
  timer_times_.emplace(id, when);
  return id;
}

void Inbox::cancel_timer(std::uint64_t id) {
  if (id == 0) return;
  Task dropped;  // destroyed outside the lock: it may hold the last reference to something
  const Guard guard(mutex_);
  const auto t = timer_times_.find(id);
  if (t == timer_times_.end()) return;
  const auto it = timers_.find({t->second, id});
  assert(it != timers_.end());
  dropped = std::move(it->second);
  timers_.erase(it);
  timer_times_.erase(t);
}

void Inbox::run_timers() {
  for (;;) {
    Task task;
    {
      const Guard guard(mutex_);
      if (timers_.empty() || timers_.begin()->first.first > Clock::now()) return;
      task = std::move(timers_.begin()->second);
      timer_times_.erase(timers_.begin()->first.second);
      timers_.erase(timers_.begin());
    }
    call(task);
  }
}

std::chrono::nanoseconds Inbox::until_next(std::chrono::nanoseconds limit) {
  const Guard guard(mutex_);
  if (!tasks_.empty() || !watch_ops_.empty()) return std::chrono::nanoseconds(0);
  if (timers_.empty()) return limit;
  const auto left = std::max(timers_.begin()->first.first - Clock::now(), Clock::duration(0));
  return limit.count() < 0 ? left : std::min<std::chrono::nanoseconds>(left, limit);
}

void Inbox::watch(int fd, std::uint32_t events, OnReady on_ready) {
  assert(fd >= 0 && events != 0);
  OnReady dropped;  // as in cancel_timer()
  const Guard guard(mutex_);
  Watch& w = watches_[fd];
  dropped = std::move(w.on_ready);
  tokens_.erase(w.token);
  w = Watch{next_id_++, std::move(on_ready)};
  tokens_[w.token] = fd;
  watch_ops_.push_back({fd, events, w.token});
}

void Inbox::unwatch(int fd) noexcept {
  const shortage::Scope patience;  // who takes back has no way to go on without
  OnReady dropped;
  const Guard guard(mutex_);
  const auto it = watches_.find(fd);
  if (it != watches_.end()) {
    dropped = std::move(it->second.on_ready);
    tokens_.erase(it->second.token);
    watches_.erase(it);
  }
  try {
    watch_ops_.push_back({fd, 0, 0});
  } catch (const std::bad_alloc&) {  // the watcher goes on with it, and nobody is called
  }
}

std::vector<Inbox::WatchOp> Inbox::take_watch_ops() {
  const Guard guard(mutex_);
  return std::exchange(watch_ops_, {});
}

void Inbox::run_ready(std::uint64_t token, std::uint32_t events) {
  OnReady ready;
  {
    const Guard guard(mutex_);
    const auto t = tokens_.find(token);
    if (t == tokens_.end()) return;  // nobody waits for it any more
    const auto w = watches_.find(t->second);
    assert(w != watches_.end() && w->second.token == token);
    ready = std::move(w->second.on_ready);
    watches_.erase(w);
    tokens_.erase(t);
  }
  call(ready, events);
}

void Inbox::close_watched_in_child() {
  for (const auto& [fd, w] : watches_) ::close(fd);
}

bool Inbox::begin_anew_in_child(int own) {
  const std::size_t watched = own >= 0 && watches_.contains(own) ? 1 : 0;
  if (watches_.size() != watched || !timers_.empty() || !tasks_.empty()) return false;
  watches_.clear();
  tokens_.clear();
  watch_ops_.clear();
  return true;
}

}  // namespace ewarp::verbs
