// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What the preload library and the provider module know of each other. Plain C: the preload library is in every process
 * of a shell, the module only in those that ask for an RDMA device.
 *
 * All functions may be called from any thread. Unless said otherwise they return a result or -errno, or
 * ETHERWARP_NOT_OURS, which sends the caller to the C library. */
#ifndef ETHERWARP_HOST_OPS_H
#define ETHERWARP_HOST_OPS_H

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ETHERWARP_HOST_VERSION = 1 };
enum { ETHERWARP_NOT_OURS = -100000 }; /* no errno */

/* The preload library's byte per file descriptor. */
enum {
  ETHERWARP_FD_NONE = 0,
  ETHERWARP_FD_NETLINK = 1,  /* sendmsg, recvmsg */
  ETHERWARP_FD_COMMAND = 2,  /* ioctl, fstat */
  ETHERWARP_FD_CM = 3,       /* write, fstat */
  ETHERWARP_FD_EVENTS = 4,   /* close only */
  ETHERWARP_FD_CM_CLOSED = 5 /* write, while no other file has the number */
};

/* What the module may ask of the preload library. */
struct etherwarp_preload_ops {
  unsigned version;
  /* Fds beyond the library's table are not marked: returns 0, else 1. Async-signal-safe. */
  int (*mark)(int fd, unsigned char kind);
};

/* The module's one exported object, named `etherwarp_host`. */
struct etherwarp_host_ops {
  unsigned version;
  /* First call; more of them are harmless. */
  void (*attach)(const struct etherwarp_preload_ops* preload);

  /* socket(AF_NETLINK, type, NETLINK_RDMA). */
  int (*netlink_socket)(int type);
  ssize_t (*sendmsg)(int fd, const struct msghdr* message, int flags);
  ssize_t (*recvmsg)(int fd, struct msghdr* message, int flags);

  /* Absolute paths below /dev/infiniband and /sys/class. */
  int (*open)(const char* path, int flags);
  int (*stat)(const char* path, struct stat* out);
  int (*access)(const char* path, int mode);

  /* *out is what the kernel said of fd; corrected where fd is ours. */
  int (*fstat)(int fd, struct stat* out);
  int (*ioctl)(int fd, unsigned long request, void* argument);
  /* A cancellation point: a cancelled thread unwinds through the caller. Of ETHERWARP_FD_CM_CLOSED only what the kernel
   * has refused with EBADF. */
  ssize_t (*write)(int fd, const void* data, size_t size);
  /* fd is about to be closed by the caller. */
  void (*closing)(int fd);
};

#ifdef __cplusplus
}
#endif
#endif
