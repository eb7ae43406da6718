// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What posters wake: an object with new work, on its way to whoever holds the engine.
#pragma once

#include <atomic>
#include <cstdint>

namespace ewarp::verbs {

// Threading: EngineLock::kick() by any thread; the calls with the engine held. The owner goes away only after
// EngineLock::serve_kicks(), when nobody kicks it any more.
class Kickable {
 public:
  virtual void serve() = 0;
  // serve() has thrown (no memory).
  virtual void broken() noexcept {}

  std::atomic<bool> kicked{false};
  Kickable* next_kick = nullptr;

 protected:
  ~Kickable() = default;
};

// A queue pair that may have much to send: Engine::kick_large() leaves that to the background thread until application
// threads have made so many passes in all.
class LargePoster : public Kickable {
 public:
  void leave_to_background(std::uint64_t passes) { left_until_.store(passes, std::memory_order_relaxed); }
  std::uint64_t left_until() const { return left_until_.load(std::memory_order_relaxed); }

 protected:
  ~LargePoster() = default;

 private:
  std::atomic<std::uint64_t> left_until_{0};
};

}  // namespace ewarp::verbs
