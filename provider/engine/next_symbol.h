// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The process's own operators new and delete, which ours call.
#pragma once

#include <dlfcn.h>

#include <cstdlib>

namespace ewarp::verbs {

// The function of this name that the process would have without ours; it may be the application's. Ours is what this
// library's code calls (late_delete.cc, patient_new.cc), and all of a program that is linked with it.
template <class Function>
Function next_symbol(const char* name, Function ours) {
  auto found = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  if (found == nullptr || found == ours) found = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
  if (found == nullptr) std::abort();
  return found;
}

}  // namespace ewarp::verbs
