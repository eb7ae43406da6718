// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/engine/engine_lock.h"

#include <pthread.h>

#include <cassert>
#include <memory>

#include "llp/futex.h"
#include "llp/spinlock.h"
#include "provider/base/log.h"
#include "provider/engine/late_free.h"

namespace ewarp::verbs {
namespace {

// A thread that leaves serves what came meanwhile so often; then somebody else does. A poster must come back to its
// program.
constexpr unsigned kRounds = 4;
// Most holders are in a short pass: it is worth a few microseconds to be spared the sleep.
constexpr unsigned kSpins = 100;

// In the order in which they were pushed.
template <class T, T* T::*next>
T* in_order(T* last) {
  T* first = nullptr;
  while (last != nullptr) {
    T* before = last->*next;
    last->*next = first;
    first = std::exchange(last, before);
  }
  return first;
}

}  // namespace

// --- tasks ---

void EngineLock::Task::finish() {
  if (state_.exchange(done, std::memory_order_acq_rel) != waiting) llp::futex_wake_one(state_);
}

bool EngineLock::Task::grant() {
  std::uint32_t now = state_.load(std::memory_order_relaxed);
  do {
    if (now == abandoned) return false;
  } while (!state_.compare_exchange_weak(now, granted, std::memory_order_acq_rel));
  return true;
}

bool EngineLock::Task::wait(std::chrono::nanoseconds limit) {
  for (unsigned spins = 0; spins < kSpins; ++spins) {
    if (state_.load(std::memory_order_acquire) == done) return true;
    llp::cpu_relax();
  }
  const auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    std::uint32_t now = waiting;
    state_.compare_exchange_strong(now, asleep, std::memory_order_acq_rel);
    if (now == done) return true;
    if (now == granted) {  // a few instructions from being done
      llp::cpu_relax();
      continue;
    }
    const auto left = limit.count() < 0 ? limit : until - std::chrono::steady_clock::now();
    now = asleep;
    if (limit.count() < 0 || left.count() > 0)
      llp::futex_wait(state_, asleep, left);
    else if (state_.compare_exchange_strong(now, abandoned, std::memory_order_acq_rel))
      return false;
  }
}

EngineLock::NoCancel::NoCancel() {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
}
EngineLock::NoCancel::~NoCancel() {
  pthread_setcancelstate(before_, nullptr);
}

// --- entering and leaving ---

bool EngineLock::take() {
  const void* nobody = nullptr;
  return holder_.load(std::memory_order_seq_cst) == nullptr &&
         holder_.compare_exchange_strong(nobody, self(), std::memory_order_seq_cst);
}

bool EngineLock::try_enter() EWARP_NO_LOCK_ANALYSIS {
  if (!take()) return false;
  late_free::begin();
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
  return true;
}

void EngineLock::leave() EWARP_NO_LOCK_ANALYSIS {
  assert(held());
  const int cancel_state = cancel_state_;
  for (unsigned round = 1;; ++round) {
    serve_tasks();
    serve_kicks();
    if (hand_over_to_heir()) break;
    // Pairs with kick() and delegate(): they push, then try to enter; we let go, then look for what was pushed.
    holder_.exchange(nullptr, std::memory_order_seq_cst);
    if (!pushed()) break;
    // A task is not left to others: the thread that waits for it may be the one that would come.
    const bool tasks = tasks_.load(std::memory_order_seq_cst) != nullptr;
    if (const auto relief = relief_.load(std::memory_order_relaxed); round >= kRounds && relief != nullptr && !tasks) {
      relief();
      break;
    }
    if (!take()) break;
  }
  late_free::end();
  pthread_setcancelstate(cancel_state, nullptr);
}

bool EngineLock::hand_over_to_heir() {
  while (heirs_ != nullptr) {
    Task* task = heirs_;
    heirs_ = task->next;
    if (!task->grant()) {  // it has given up, and left its claim here
      delete static_cast<Claim*>(task);
      continue;
    }
    holder_.store(task->heir, std::memory_order_seq_cst);
    task->finish();
    return true;
  }
  return false;
}

bool EngineLock::acquire(std::chrono::nanoseconds limit) EWARP_NO_LOCK_ANALYSIS {
  assert(!held());
  if (try_enter()) return true;
  int cancel_state = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  // Not in this frame: a claim that was given up is found by its holder later.
  auto claim = std::make_unique<Claim>();
  claim->heir = self();
  push(*claim);
  if (try_enter()) leave();  // serves it, in its turn: this thread, or one before it, is the heir
  if (!claim->wait(limit)) {
    static_cast<void>(claim.release());
    pthread_setcancelstate(cancel_state, nullptr);
    return false;
  }
  cancel_state_ = cancel_state;
  late_free::begin();
  return true;
}

// --- what others do for us ---

void EngineLock::push(Task& task) {
  task.next = tasks_.load(std::memory_order_relaxed);
  while (!tasks_.compare_exchange_weak(task.next, &task, std::memory_order_seq_cst)) {
  }
}

void EngineLock::delegate(Task& task) {
  {
    const NoCancel no_cancel;
    push(task);
    if (try_enter()) leave();
    task.wait(std::chrono::nanoseconds(-1));
  }
  if (task.error) std::rethrow_exception(task.error);
}

void EngineLock::serve_tasks() {
  assert(held());
  if (tasks_.load(std::memory_order_relaxed) == nullptr) return;
  Task* task = in_order<Task, &Task::next>(tasks_.exchange(nullptr, std::memory_order_seq_cst));
  while (task != nullptr) {
    Task* const next = task->next;
    if (task->heir != nullptr) {
      task->next = nullptr;
      Task** end = &heirs_;
      while (*end != nullptr) end = &(*end)->next;
      *end = task;
    } else {
      try {
        task->execute();
      } catch (...) {
        task->error = std::current_exception();
      }
      task->finish();
    }
    task = next;
  }
}

void EngineLock::push(Kickable& object) {
  if (object.kicked.exchange(true, std::memory_order_seq_cst)) return;
  Kickable* first = kicks_.load(std::memory_order_relaxed);
  do object.next_kick = first;
  while (!kicks_.compare_exchange_weak(first, &object, std::memory_order_seq_cst));
}

void EngineLock::kick(Kickable& object) {
  if (held()) return push(object);
  if (try_enter()) {
    const Leaver leaver{*this};
    // What was posted before comes first.
    serve_kicks();
    serve(object);
    return;
  }
  push(object);
  if (try_enter()) leave();
}

// Nothing may come out of it: the thread that serves is a poster, a poller or one that leaves, and knows nothing of it.
void EngineLock::serve(Kickable& object) noexcept {
  try {
    object.serve();
  } catch (const std::exception& e) {
    log::error("a queue pair could not be served: {}", e.what());
    object.broken();
  }
}

void EngineLock::serve_kicks() {
  assert(held());
  if (kicks_.load(std::memory_order_relaxed) == nullptr) return;
  Kickable* object = in_order<Kickable, &Kickable::next_kick>(kicks_.exchange(nullptr, std::memory_order_seq_cst));
  while (object != nullptr) {
    Kickable* next = object->next_kick;
    object->kicked.exchange(false, std::memory_order_seq_cst);
    serve(*object);
    object = next;
  }
}

void EngineLock::let_go_in_child() {
  // Tasks lie in frames of threads that are not here.
  tasks_.store(nullptr, std::memory_order_relaxed);
  heirs_ = nullptr;
  for (Kickable* k = kicks_.exchange(nullptr, std::memory_order_relaxed); k != nullptr; k = k->next_kick)
    k->kicked.store(false, std::memory_order_relaxed);
  relief_.store(nullptr, std::memory_order_relaxed);
  holder_.store(nullptr, std::memory_order_relaxed);
  late_free::forget_in_child();
  pthread_setcancelstate(cancel_state_, nullptr);
}

}  // namespace ewarp::verbs
