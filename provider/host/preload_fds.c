// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Hooks on calls that take a file descriptor, or make one without a path. */
#include "provider/host/preload.h"

#include <linux/netlink.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

HOOK int socket(int family, int type, int protocol) {
  if (__builtin_expect(family == AF_NETLINK && protocol == NETLINK_RDMA, 0)) {
    const struct etherwarp_host_ops* ops = host();
    if (ops != NULL) {
      int fd = ops->netlink_socket(type);
      if (fd != ETHERWARP_NOT_OURS) return (int)outcome(fd);
    }
  }
  return REAL(socket)(family, type, protocol);
}

HOOK ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  if (__builtin_expect(kind_of(fd) == ETHERWARP_FD_NETLINK, 0)) {
    const struct etherwarp_host_ops* ops = host();
    ssize_t result = ops == NULL ? ETHERWARP_NOT_OURS : ops->sendmsg(fd, message, flags);
    if (result != ETHERWARP_NOT_OURS) return outcome(result);
  }
  return REAL(sendmsg)(fd, message, flags);
}

HOOK ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  if (__builtin_expect(kind_of(fd) == ETHERWARP_FD_NETLINK, 0)) {
    const struct etherwarp_host_ops* ops = host();
    ssize_t result = ops == NULL ? ETHERWARP_NOT_OURS : ops->recvmsg(fd, message, flags);
    if (result != ETHERWARP_NOT_OURS) return outcome(result);
  }
  return REAL(recvmsg)(fd, message, flags);
}

HOOK int ioctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (__builtin_expect(kind_of(fd) == ETHERWARP_FD_COMMAND, 0)) {
    const struct etherwarp_host_ops* ops = host();
    int result = ops == NULL ? ETHERWARP_NOT_OURS : ops->ioctl(fd, request, argument);
    if (result != ETHERWARP_NOT_OURS) return (int)outcome(result);
  }
  return REAL(ioctl)(fd, request, argument);
}

HOOK ssize_t write(int fd, const void* data, size_t size) {
  if (__builtin_expect(kind_of(fd) == ETHERWARP_FD_CM, 0)) {
    const struct etherwarp_host_ops* ops = host();
    ssize_t result = ops == NULL ? ETHERWARP_NOT_OURS : ops->write(fd, data, size);
    if (result != ETHERWARP_NOT_OURS) return outcome(result);
  }
  ssize_t written = __write(fd, data, size);
  if (__builtin_expect(written < 0 && errno == EBADF && kind_of(fd) == ETHERWARP_FD_CM_CLOSED, 0)) {
    const struct etherwarp_host_ops* ops = host();
    ssize_t result = ops == NULL ? ETHERWARP_NOT_OURS : ops->write(fd, data, size);
    if (result != ETHERWARP_NOT_OURS) return outcome(result);
    errno = EBADF;
  }
  return written;
}

HOOK int close(int fd) {
  /* Before the number is free: the next open() of another thread may get it. */
  if (__builtin_expect(kind_of(fd) != ETHERWARP_FD_NONE, 0)) {
    const struct etherwarp_host_ops* ops = host();
    int saved = errno;
    if (ops != NULL) ops->closing(fd);
    errno = saved;
  }
  return __close(fd);
}
