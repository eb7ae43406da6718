// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copies to and from, and atomics on, memory that its owner may have unmapped. Registered memory is not pinned: a peer
// that names such a region must cause a protection error, not the end of the process.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ewarp::llp {

// Installs the SIGSEGV and SIGBUS handlers that turn a fault inside guarded_copy() into its return value (and one
// inside the routines of guarded_crc.h); any other
// fault goes to the handler that was there before (or the default action). Idempotent and cheap (two system calls when
// nothing changed): called at each memory registration, so it also takes the place back from a handler that the
// application installed since. False: faults are not caught, for want of a routine for the machine or after too many
// newcomers. Thread-safe. Not for signal handlers.
bool install_copy_guard();

// Whether there is a routine for the machine.
bool faults_can_be_caught() noexcept;

// Copies n octets; false if a page of either side was not accessible (what was copied until then stays copied).
// The two do not overlap. About the cost of memcpy. Other threads see the last octet no earlier than the others, and no
// octet is written again after it: programs wait for the end of a buffer to change and then write there themselves.
// The calling thread must not block SIGSEGV and SIGBUS.
bool guarded_copy(void* to, const void* from, std::size_t n) noexcept;

// The same for a target that another CPU reads next, and this one does not: it need not have the target's lines in its
// cache, and does not put them there. Nor does it promise an order of its stores; all are seen before any later one.
bool guarded_copy_past_caches(void* to, const void* from, std::size_t n) noexcept;

// Atomic with respect to everything else that uses atomic instructions on these 8 octets, here or in a process that
// shares them; sequentially consistent. False: the page cannot be written, nothing happened. Requires: `at` is a
// multiple of 8. Guarded as guarded_copy() is; where there is no routine for the machine, the page is only tried
// before.
// *value: what to add; then what was there.
bool guarded_fetch_add(void* at, std::uint64_t* value) noexcept;
// *expected: what must be there for `desired` to be stored; then what was there.
bool guarded_compare_exchange(void* at, std::uint64_t* expected, std::uint64_t desired) noexcept;

// guarded_copy() by a system call that copies within the process: some 100 times the cost for a small copy, needs no
// signal handler. Takes its place where there is no routine for the machine.
bool guarded_copy_by_kernel(void* to, const void* from, std::size_t n) noexcept;

}  // namespace ewarp::llp
