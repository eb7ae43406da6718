// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// File descriptors of our own: out of the low numbers (programs use select()), close-on-exec, and not limited by a low
// soft RLIMIT_NOFILE.
#pragma once

#include <cerrno>

namespace ewarp::llp {

// Moves fd to a number >= 256 where the limit allows (else keeps it), sets FD_CLOEXEC. Raises the soft RLIMIT_NOFILE to
// the hard limit when the numbers run out. Returns the new fd; fd itself is closed when moved. fd < 0 is passed
// through.
int high_fd(int fd);

// Raises the soft RLIMIT_NOFILE to the hard one. True if it changed.
bool raise_fd_limit();

// high_fd(make()), where make() returns an fd or -1 with errno; tried again with a raised limit when it says EMFILE.
template <class Make>
int make_high_fd(Make make) {
  int fd = make();
  if (fd < 0 && errno == EMFILE && raise_fd_limit()) fd = make();
  return high_fd(fd);
}

}  // namespace ewarp::llp
