// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/random_key.h"

#include <sys/random.h>
#include <unistd.h>

#include <chrono>

namespace ewarp::llp {

SipKey random_key() {
  SipKey key;
  if (getrandom(key.data(), sizeof key, GRND_NONBLOCK) == sizeof key) return key;
  // Addresses are laid out at random.
  key[0] = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  key[1] = reinterpret_cast<std::uintptr_t>(&key) ^ static_cast<std::uint64_t>(getpid()) << 48;
  return key;
}

}  // namespace ewarp::llp
