// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What this library's code frees is freed by these; the version script keeps them from everybody else.
#include <cstddef>

#include "provider/engine/late_free.h"

using ewarp::verbs::late_free::Kind;

void operator delete(void* memory) noexcept {
  ewarp::verbs::late_free::free(memory, Kind::object, 0);
}
void operator delete(void* memory, std::size_t octets) noexcept {
  ewarp::verbs::late_free::free(memory, Kind::object, octets);
}
void operator delete[](void* memory) noexcept {
  ewarp::verbs::late_free::free(memory, Kind::array, 0);
}
void operator delete[](void* memory, std::size_t octets) noexcept {
  ewarp::verbs::late_free::free(memory, Kind::array, octets);
}
