// What posters wake: an object with new work, on its way to whoever holds the engine.
#pragma once

#include <atomic>

namespace ewarp::verbs {

// Threading: Engine::kick() by any thread; serve() with the engine held. The owner goes away only after
// Engine::serve_kicks(), when nobody kicks it any more.
class Kickable {
 public:
  virtual void serve() = 0;

  std::atomic<bool> kicked{false};
  Kickable* next_kick = nullptr;

 protected:
  ~Kickable() = default;
};

}  // namespace ewarp::verbs
