// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A place in front of the process's SIGSEGV and SIGBUS handlers that does not take anything away from them.
#pragma once

#include <signal.h>

namespace ewarp::llp {

// Called in the signal handler: true if the fault was ours and `context` now says where to go on.
using RecoverFault = bool (*)(int signal, const siginfo_t& info, void* context);

// The signal comes from the instruction at which it arrived, which will run again when the handler returns. Not so for
// what others send, and for failing memory that is reported in advance.
bool from_instruction(int signal, const siginfo_t& info);

// Makes `recover` (always the same function) the first to see SIGSEGV and SIGBUS. What it does not know goes to the
// action that was installed before: a handler under its own mask and flags, the default action with the core dump at
// the faulting instruction. Called again it takes the place back from a handler that came since, which is then next in
// the chain; newcomers that call the handler they replaced, and those that put it back, both get what they expect.
// After some 30 different newcomers the place is left to them: false. Thread-safe.
bool take_fault_signals(RecoverFault recover);

// Around fork(), in the thread that calls it: the child does not inherit the place half taken.
void fault_signals_before_fork();
void fault_signals_after_fork();
// Instead, where the first of them was not called.
void fault_signals_forget_in_child();

}  // namespace ewarp::llp
