// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a lock guards, for clang's -Wthread-safety (scripts/lint); nothing to other compilers.
#pragma once

#if defined(__clang__)
#define EWARP_LOCK_ATTRIBUTE(x) __attribute__((x))
#else
#define EWARP_LOCK_ATTRIBUTE(x)
#endif

#define EWARP_CAPABILITY(name) EWARP_LOCK_ATTRIBUTE(capability(name))
#define EWARP_SCOPED_CAPABILITY EWARP_LOCK_ATTRIBUTE(scoped_lockable)
// Of a field: touched with this lock held only; of a pointer: what it points to is.
#define EWARP_GUARDED_BY(lock) EWARP_LOCK_ATTRIBUTE(guarded_by(lock))
#define EWARP_PT_GUARDED_BY(lock) EWARP_LOCK_ATTRIBUTE(pt_guarded_by(lock))
// Of a function: the caller holds these; the caller must not.
#define EWARP_REQUIRES(...) EWARP_LOCK_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define EWARP_EXCLUDES(...) EWARP_LOCK_ATTRIBUTE(locks_excluded(__VA_ARGS__))
// Of a function: it takes them; gives them back; takes them if it returns true; asserts that they are held.
#define EWARP_ACQUIRE(...) EWARP_LOCK_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define EWARP_RELEASE(...) EWARP_LOCK_ATTRIBUTE(release_capability(__VA_ARGS__))
#define EWARP_TRY_ACQUIRE() EWARP_LOCK_ATTRIBUTE(try_acquire_capability(true))
#define EWARP_ASSERTS_HELD(...) EWARP_LOCK_ATTRIBUTE(assert_capability(__VA_ARGS__))
// What the analysis cannot follow: around fork(), and where a lock is handed from thread to thread.
#define EWARP_NO_LOCK_ANALYSIS EWARP_LOCK_ATTRIBUTE(no_thread_safety_analysis)
