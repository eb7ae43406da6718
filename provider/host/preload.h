// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What the hooks of libetherwarp-preload.so have in common: the C library underneath, which file descriptors are ours,
 * and the provider module that answers.
 *
 * Comes before every other header: it decides which variants of the C library's functions those declare.
 */
#pragma once

#define _GNU_SOURCE
/* The aliases of the hooks exist only where the names are not mapped onto each other. */
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "provider/host/host_ops.h"

/* A function that takes the place of the C library's. Exported without a symbol version: a versioned definition would
 * not. */
#define HOOK __attribute__((visibility("default")))
#define INSIDE __attribute__((visibility("hidden")))

/* close() and write() are called from signal handlers, possibly as the first call of all: these names reach the same
 * functions without a look-up. */
extern int __close(int fd);
extern ssize_t __write(int fd, const void* data, size_t size);

#define REAL_FUNCTIONS(X)                                         \
  X(int, open, (const char*, int, ...))                           \
  X(int, openat, (int, const char*, int, ...))                    \
  X(FILE*, fopen, (const char*, const char*))                     \
  X(DIR*, opendir, (const char*))                                 \
  X(int, stat, (const char*, struct stat*))                       \
  X(int, lstat, (const char*, struct stat*))                      \
  X(int, fstat, (int, struct stat*))                              \
  X(int, fstatat, (int, const char*, struct stat*, int))          \
  X(int, statx, (int, const char*, int, unsigned, struct statx*)) \
  X(int, access, (const char*, int))                              \
  X(int, faccessat, (int, const char*, int, int))                 \
  X(int, ioctl, (int, unsigned long, ...))                        \
  X(int, socket, (int, int, int))                                 \
  X(ssize_t, sendmsg, (int, const struct msghdr*, int))           \
  X(ssize_t, recvmsg, (int, struct msghdr*, int))

#define DECLARE(result, name, arguments) extern INSIDE result(*_Atomic real_##name) arguments;
REAL_FUNCTIONS(DECLARE)
#undef DECLARE

extern INSIDE atomic_bool resolved;
INSIDE void resolve(void);

/* The C library's function of this name. */
#define REAL(name)                                                                                    \
  (__builtin_expect(!atomic_load_explicit(&resolved, memory_order_acquire), 0) ? resolve() : (void)0, \
   atomic_load_explicit(&real_##name, memory_order_relaxed))

/* What our file descriptors are, by number: ETHERWARP_FD_..., one byte each; pages that were never written cost
 * nothing. */
#define TABLE_SIZE (1 << 20)
extern INSIDE _Atomic unsigned char kinds[TABLE_SIZE];

static inline unsigned char kind_of(int fd) {
  return (unsigned)fd < TABLE_SIZE ? atomic_load_explicit(&kinds[fd], memory_order_acquire) : ETHERWARP_FD_NONE;
}

/* The provider, loaded now if need be; null if it cannot be had. Keeps errno. */
INSIDE const struct etherwarp_host_ops* host(void);

/* -errno to the libc convention. */
static inline long outcome(long result) {
  if (result >= 0) return result;
  assert(result >= -4095); /* as the kernel's errors are */
  errno = (int)-result;
  return -1;
}
