// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory that is freed while this thread holds an engine goes back to the allocator when it holds none.
//
// free() is the application's: a hook in it (a registration cache's, say) may want a lock whose owner waits for what
// the holder does. So no hook runs while an engine is held, in a pass no more than in a task of another thread.
#pragma once

#include <cstddef>

namespace ewarp::verbs::late_free {

enum class Kind { object, array };  // made by new, by new[]

// At once, or as soon as this thread holds no engine. octets: what was asked for; 0: unknown. For operator delete
// (late_delete.cc).
void free(void* memory, Kind kind, std::size_t octets);
// A block of so many octets, or more, of those that wait here; null: there is none. For operator new, where the process
// has no memory (shortage.h).
void* take(std::size_t octets, Kind kind);

// This thread has got hold of an engine; it has let go of it. In pairs; they may be nested.
void begin();
void end();
bool holds_engine();  // this thread does
// A forked child: nothing is held.
void forget_in_child();

}  // namespace ewarp::verbs::late_free
