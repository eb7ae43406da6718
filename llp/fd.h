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

// close(), but no cancellation point: destructors call it, and calls that hold locks. The C library's all the same, or
// ThreadSanitizer would take the next file with this number for the same one.
void close_fd(int fd);

// Raises the soft RLIMIT_NOFILE to the hard one. True if it changed.
bool raise_fd_limit();

// high_fd(make()), where make() returns an fd or -1 with errno; tried again with a raised limit when it says EMFILE.
template <class Make>
int make_high_fd(Make make) {
  int fd = make();
  if (fd < 0 && errno == EMFILE && raise_fd_limit()) fd = make();
  return high_fd(fd);
}

// A number on the open file behind fd that tells it from another file with the same fd: eventfds and epolls share one
// inode, and the kernel gives the id of a closed eventfd (/proc/self/fdinfo) to the next one. The number is the signal
// of F_SETSIG, so only for files that never send one: those without fasync (eventfd, epoll, /dev/null). dup() and
// fork() share it.
// 1 to 64; the one that it has already, else the next of a row that repeats. 0: the file takes none.
int mark_file(int fd);
// What mark_file() returned for this file; 0: never marked; -1: not open.
int file_mark(int fd);

}  // namespace ewarp::llp
