// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// pthread_create() of this program and of the libraries that it loads, which fails as often as it is told to. Include
// it in one source of a program.
#pragma once

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <climits>

namespace ewarp::test {

inline std::atomic<int> failures_to_come{0};
inline std::atomic<int> failures_seen{0};

// While it is there none is made.
struct NoThreads {
  NoThreads() { failures_to_come = INT_MAX; }
  ~NoThreads() { failures_to_come = 0; }
};

}  // namespace ewarp::test

extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                                             void* (*main)(void*), void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (ewarp::test::failures_to_come.load() > 0) {
    ewarp::test::failures_to_come.fetch_sub(1);
    ewarp::test::failures_seen.fetch_add(1);
    return EAGAIN;
  }
  return create(thread, attributes, main, argument);
}
