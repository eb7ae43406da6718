// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Holding the engine: one thread at a time, and nobody waits for it to come free. What a thread wants done while
// another one holds the engine, the holder does.
#pragma once

#include <atomic>
#include <cassert>
#include <chrono>
#include <cstdint>
#include <exception>
#include <utility>

#include "llp/annotations.h"
#include "provider/engine/kickable.h"

namespace ewarp::verbs {

// Threading: every call by any thread, unless it says 'held'.
//
// Protocol: who wants something done pushes it, then tries to enter; the holder lets go, then looks at what was pushed.
// Both are seq_cst, so at least one of the two sees the other.
class EWARP_CAPABILITY("engine") EngineLock {
 public:
  // An assert, for what clang's analysis cannot follow.
  void assert_held() const EWARP_ASSERTS_HELD(this) { assert(held()); }
  // Whether this thread holds the engine.
  bool held() const { return holder_.load(std::memory_order_relaxed) == self(); }
  // Whether any thread does, at this moment.
  bool busy() const { return holder_.load(std::memory_order_relaxed) != nullptr; }

  // While it is held the thread cannot be cancelled: a cancelled recv() may have taken octets off the stream.
  bool try_enter() EWARP_TRY_ACQUIRE();
  // Serves what was pushed meanwhile. Held.
  void leave() EWARP_RELEASE();

  // Calls f() with the engine held, by this thread or by the one that holds it now, and returns when that is done; what
  // f throws is thrown here. A holder calls it at once. f runs between batches: nothing is being iterated, no endpoint
  // is being called. It may run on another thread, whose owner knows nothing of it: it frees no memory that an
  // application might watch (free(), ibv_dereg_mr()), and waits for nobody.
  template <class F>
  void run(F&& f);

  // Returns when this thread holds the engine: the holder hands it over. For fork() and tests.
  void acquire() EWARP_ACQUIRE() EWARP_NO_LOCK_ANALYSIS { acquire(std::chrono::nanoseconds(-1)); }
  // False: not within the limit (negative: none).
  bool acquire(std::chrono::nanoseconds limit) EWARP_TRY_ACQUIRE();

  // The object is served by this thread, now, or by the holder, soon. A holder serves it when it leaves.
  void kick(Kickable& object);
  // The holder's, or that of the next one.
  void push(Kickable& object);
  bool pushed() const {
    return kicks_.load(std::memory_order_seq_cst) != nullptr || tasks_.load(std::memory_order_seq_cst) != nullptr;
  }
  // Serves the objects that were pushed, no tasks. Held.
  void serve_kicks() EWARP_REQUIRES(this);
  // Executes what others have left to the holder. Held, nothing is being iterated.
  void serve_tasks() EWARP_REQUIRES(this);

  // A forked child: the forking thread holds the engine, what other threads have pushed is nobody's.
  void let_go_in_child();

  // Who goes on serving where others push faster than a leaving thread serves.
  void set_relief(void (*relief)()) { relief_.store(relief); }

 protected:
  EngineLock() = default;
  // Leaves at the end of a scope, however it is left.
  class EWARP_SCOPED_CAPABILITY Leaver {
   public:
    explicit Leaver(EngineLock& lock) EWARP_REQUIRES(lock) EWARP_NO_LOCK_ANALYSIS : lock_(lock) {}
    ~Leaver() EWARP_RELEASE() { lock_.leave(); }
    Leaver(const Leaver&) = delete;
    Leaver& operator=(const Leaver&) = delete;

   private:
    EngineLock& lock_;
  };

 private:
  // In the frame of the thread that waits for it.
  class Task {
   public:
    virtual void execute() = 0;
    // The last touch of it: afterwards the frame may be gone.
    void finish();
    // False: the owner has given up. Otherwise it no longer can, and waits for finish().
    bool grant();
    // Negative: no limit. False: given up; nobody will execute it.
    bool wait(std::chrono::nanoseconds limit);

    Task* next = nullptr;
    const void* heir = nullptr;  // not null: who holds the engine afterwards
    std::exception_ptr error;

   protected:
    ~Task() = default;

   private:
    enum State : std::uint32_t { waiting, asleep, granted, done, abandoned };
    std::atomic<std::uint32_t> state_{waiting};
  };
  template <class F>
  struct Call final : Task {
    explicit Call(F& function) : f(function) {}
    void execute() override { f(); }
    F& f;
  };
  struct Claim final : Task {
    void execute() override {}
  };
  class NoCancel {
   public:
    NoCancel();
    ~NoCancel();
    NoCancel(const NoCancel&) = delete;
    NoCancel& operator=(const NoCancel&) = delete;

   private:
    int before_;
  };

  static const void* self() { return __builtin_thread_pointer(); }
  bool take();
  void delegate(Task& task);
  void push(Task& task);
  bool hand_over_to_heir();
  static void serve(Kickable& object) noexcept;

  std::atomic<const void*> holder_{nullptr};
  std::atomic<Kickable*> kicks_{nullptr};
  std::atomic<Task*> tasks_{nullptr};
  std::atomic<void (*)()> relief_{nullptr};
  // Held.
  int cancel_state_ = 0;   // of the holder, before it entered
  Task* heirs_ = nullptr;  // who wants to hold it, in order
};

template <class F>
void EngineLock::run(F&& f) {
  if (held()) return static_cast<void>(f());
  if (try_enter()) {
    const Leaver leaver{*this};
    serve_kicks();  // what this thread has posted before comes first
    return static_cast<void>(f());
  }
  Call<F> call(f);
  delegate(call);
}

}  // namespace ewarp::verbs
