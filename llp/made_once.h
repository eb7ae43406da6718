// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a process makes once, at first use. Nobody waits for anybody: a child that was forked while one thread made it
// for others would wait for ever.
#pragma once

#include <atomic>
#include <memory>

namespace ewarp::llp {

// Never freed: threads and exit handlers may ask until the end. To be a variable with static storage, where it is there
// before any code runs.
// Threading: any thread at any time.
template <class T>
class MadeOnce {
 public:
  constexpr MadeOnce() = default;
  MadeOnce(const MadeOnce&) = delete;
  MadeOnce& operator=(const MadeOnce&) = delete;

  // make() returns a T and is called by whoever finds none. Of several that make one at once, whose is stored first
  // wins; the others drop theirs and get the winner's. The winner calls kept(value) once, when others may already see
  // it. What make() throws passes through, and the next who asks makes it.
  template <class Make, class Kept>
  const T& get(Make make, Kept kept) {
    if (const T* known = known_.load(std::memory_order_acquire)) return *known;
    auto mine = std::make_unique<const T>(make());
    const T* other = nullptr;
    if (!known_.compare_exchange_strong(other, mine.get(), std::memory_order_acq_rel)) return *other;
    const T& value = *mine.release();
    kept(value);
    return value;
  }
  template <class Make>
  const T& get(Make make) {
    return get(make, [](const T&) {});
  }

 private:
  std::atomic<const T*> known_{nullptr};
};

}  // namespace ewarp::llp
