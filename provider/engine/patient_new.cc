// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What this library's code allocates is allocated by these; the version script keeps them from everybody else.
#include <cstddef>

#include "provider/engine/shortage.h"

using ewarp::verbs::late_free::Kind;

void* operator new(std::size_t octets) {
  return ewarp::verbs::shortage::allocate(octets, Kind::object);
}
void* operator new[](std::size_t octets) {
  return ewarp::verbs::shortage::allocate(octets, Kind::array);
}
