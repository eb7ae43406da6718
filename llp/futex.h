// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Sleeping on a word of this process. Neither call is a cancellation point.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace ewarp::llp {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

// Sleeps while the word has this value; may return early (a signal, a wake-up meant for a former user of the address).
// limit: negative for none.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value,
                       std::chrono::nanoseconds limit = std::chrono::nanoseconds(-1)) {
  const timespec at_most{static_cast<std::time_t>(limit.count() / 1'000'000'000), limit.count() % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, limit.count() < 0 ? nullptr : &at_most, nullptr, 0);
}

// Looks at the address only: the word itself may be gone already.
inline void futex_wake_one(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace ewarp::llp
