// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A moment without memory, where nobody can be told of it.
//
// A verbs call answers ENOMEM. What the holder of an engine and the background thread do is nobody's call: an event, a
// completion or a connection would be lost, or the process would end. So they wait for memory: other threads free some
// meanwhile, or the shortage is over. What the holder itself has freed (late_free.h) it takes again. Small objects
// only; what is large is allocated by calls.
#pragma once

#include <cstddef>

#include "provider/engine/late_free.h"

namespace ewarp::verbs::shortage {

// In its scope this thread waits for memory as the holder of an engine does. They may be nested.
class Scope {
 public:
  Scope();
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

// By the process's own operator new; kPatience is how long a thread that waits tries again (shortage.cc). Throws
// std::bad_alloc; for operator new (patient_new.cc).
void* allocate(std::size_t octets, late_free::Kind kind);

}  // namespace ewarp::verbs::shortage
