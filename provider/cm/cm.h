// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The connection manager behind librdmacm: answers the ucma commands (<rdma/rdma_user_cm.h>, ABI 4) that the library
// writes to its event channel, as the kernel's rdma_cm does, for RC over TCP with MPA start-up.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace ewarp::cm {

// All return a result or -errno and may be called from any thread. None is noexcept: a thread that is cancelled while
// it waits in GET_EVENT unwinds through ucma_write() and its callers.

// What open("/dev/infiniband/rdma_cm", flags) gives: an eventfd (semaphore) that counts the events not yet fetched, so
// that poll(), epoll and O_NONBLOCK behave as on the kernel's file. Of the flags only O_NONBLOCK is used: it is always
// close-on-exec.
int ucma_open(int flags);

// One write(): one command with its header. Returns len. EBADF: not one of ours; EPERM: inherited over fork().
ssize_t ucma_write(int fd, const void* buf, std::size_t len);

// The same, of a channel that was closed already. GET_EVENT never returns: a thread that had entered it a moment
// earlier would wait for ever in the kernel's file as well, and programs rely on that (rping destroys its channel under
// a thread that goes back for another event, and takes an error there for a failure). Else EBADF.
ssize_t ucma_write_closed(const void* buf, std::size_t len);

// To be called before the fd is closed: drops all ids and events of the file. Other fds are ignored.
void ucma_close(int fd);

// True for an open event channel. No lock, async-signal-safe.
bool ucma_is(int fd);

// In a forked child: forgets all, closes the sockets that were inherited (a peer must see the parent die). The event
// channels stay known, so that a command of the child is refused instead of raising the parent's event count.
void in_child();

}  // namespace ewarp::cm
