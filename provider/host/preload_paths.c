// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Hooks on calls that name a path: open, stat and access in the forms that programs call. */
#include "provider/host/preload.h"

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout for both");

/* --- paths ------------------------------------------------------------------------------------------------------- */

static inline int starts_with(const char* path, const char* prefix, size_t length) {
  return strncmp(path, prefix, length) == 0;
}
#define BELOW(path, prefix) starts_with(path, prefix, sizeof(prefix) - 1)

/* Whether the provider should see this path at all. It then decides. */
static inline int of_interest(const char* path) {
  if (path == NULL || path[0] != '/' || (path[1] != 'd' && path[1] != 's')) return 0;
  return BELOW(path, "/dev/infiniband") || BELOW(path, "/sys/class/infiniband") ||
         BELOW(path, "/sys/class/misc/rdma_cm");
}

/* An fd, -1 with errno, or ETHERWARP_NOT_OURS. */
static inline int try_open(const char* path, int flags) {
  if (!of_interest(path)) return ETHERWARP_NOT_OURS;
  const struct etherwarp_host_ops* ops = host();
  if (ops == NULL) return ETHERWARP_NOT_OURS;
  int fd = ops->open(path, flags);
  return fd == ETHERWARP_NOT_OURS ? fd : (int)outcome(fd);
}

static inline int try_stat(const char* path, struct stat* out) {
  if (!of_interest(path)) return ETHERWARP_NOT_OURS;
  const struct etherwarp_host_ops* ops = host();
  if (ops == NULL) return ETHERWARP_NOT_OURS;
  int result = ops->stat(path, out);
  return result == ETHERWARP_NOT_OURS ? result : (int)outcome(result);
}

static inline int try_access(const char* path, int mode) {
  if (!of_interest(path)) return ETHERWARP_NOT_OURS;
  const struct etherwarp_host_ops* ops = host();
  if (ops == NULL) return ETHERWARP_NOT_OURS;
  int result = ops->access(path, mode);
  return result == ETHERWARP_NOT_OURS ? result : (int)outcome(result);
}

/* --- open ---------------------------------------------------------------------------------------------------------*/

static inline int needs_mode(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

#define MODE_ARGUMENT(flags)          \
  mode_t mode = 0;                    \
  if (needs_mode(flags)) {            \
    va_list arguments;                \
    va_start(arguments, flags);       \
    mode = va_arg(arguments, mode_t); \
    va_end(arguments);                \
  }

HOOK int open(const char* path, int flags, ...) {
  MODE_ARGUMENT(flags)
  int fd = try_open(path, flags);
  return fd != ETHERWARP_NOT_OURS ? fd : REAL(open)(path, flags, mode);
}
HOOK int open64(const char* path, int flags, ...) {
  MODE_ARGUMENT(flags)
  int fd = try_open(path, flags);
  return fd != ETHERWARP_NOT_OURS ? fd : REAL(open)(path, flags | O_LARGEFILE, mode);
}
HOOK int __open_2(const char* path, int flags) {
  int fd = try_open(path, flags);
  return fd != ETHERWARP_NOT_OURS ? fd : REAL(open)(path, flags);
}
HOOK int __open64_2(const char* path, int flags) {
  int fd = try_open(path, flags);
  return fd != ETHERWARP_NOT_OURS ? fd : REAL(open)(path, flags | O_LARGEFILE);
}
HOOK int openat(int directory, const char* path, int flags, ...) {
  MODE_ARGUMENT(flags)
  int fd = try_open(path, flags);
  return fd != ETHERWARP_NOT_OURS ? fd : REAL(openat)(directory, path, flags, mode);
}
HOOK int openat64(int directory, const char* path, int flags, ...) {
  MODE_ARGUMENT(flags)
  int fd = try_open(path, flags);
  return fd != ETHERWARP_NOT_OURS ? fd : REAL(openat)(directory, path, flags | O_LARGEFILE, mode);
}
HOOK int __openat_2(int directory, const char* path, int flags) {
  int fd = try_open(path, flags);
  return fd != ETHERWARP_NOT_OURS ? fd : REAL(openat)(directory, path, flags);
}
HOOK int __openat64_2(int directory, const char* path, int flags) {
  int fd = try_open(path, flags);
  return fd != ETHERWARP_NOT_OURS ? fd : REAL(openat)(directory, path, flags | O_LARGEFILE);
}

static FILE* hook_fopen(const char* path, const char* how) {
  if (!of_interest(path)) return REAL(fopen)(path, how);
  int writes = strchr(how, '+') != NULL ? O_RDWR : how[0] == 'r' ? O_RDONLY : O_WRONLY;
  int fd = try_open(path, writes | (strchr(how, 'e') != NULL ? O_CLOEXEC : 0));
  if (fd == ETHERWARP_NOT_OURS) return REAL(fopen)(path, how);
  if (fd < 0) return NULL;
  FILE* file = fdopen(fd, how);
  if (file == NULL) __close(fd);
  return file;
}
HOOK FILE* fopen(const char* restrict path, const char* restrict how) {
  return hook_fopen(path, how);
}
HOOK FILE* fopen64(const char* restrict path, const char* restrict how) {
  return hook_fopen(path, how);
}

HOOK DIR* opendir(const char* path) {
  int fd = try_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd == ETHERWARP_NOT_OURS) return REAL(opendir)(path);
  if (fd < 0) return NULL;
  DIR* directory = fdopendir(fd);
  if (directory == NULL) __close(fd);
  return directory;
}

/* --- stat, access ------------------------------------------------------------------------------------------------ */

static int hook_stat(const char* path, struct stat* out) {
  int result = try_stat(path, out);
  return result != ETHERWARP_NOT_OURS ? result : REAL(stat)(path, out);
}
static int hook_lstat(const char* path, struct stat* out) {
  int result = try_stat(path, out);
  return result != ETHERWARP_NOT_OURS ? result : REAL(lstat)(path, out);
}
static int hook_fstat(int fd, struct stat* out) {
  int result = REAL(fstat)(fd, out);
  unsigned char kind = kind_of(fd);
  if (result != 0 || (kind != ETHERWARP_FD_COMMAND && kind != ETHERWARP_FD_CM)) return result;
  const struct etherwarp_host_ops* ops = host();
  if (ops != NULL) ops->fstat(fd, out);
  return 0;
}
static int hook_fstatat(int directory, const char* path, struct stat* out, int flags) {
  if ((flags & AT_EMPTY_PATH) != 0 && path != NULL && path[0] == '\0' && kind_of(directory) != ETHERWARP_FD_NONE)
    return hook_fstat(directory, out);
  int result = try_stat(path, out);
  return result != ETHERWARP_NOT_OURS ? result : REAL(fstatat)(directory, path, out, flags);
}

HOOK int stat(const char* restrict path, struct stat* restrict out) {
  return hook_stat(path, out);
}
HOOK int lstat(const char* restrict path, struct stat* restrict out) {
  return hook_lstat(path, out);
}
HOOK int fstat(int fd, struct stat* out) {
  return hook_fstat(fd, out);
}
HOOK int fstatat(int directory, const char* restrict path, struct stat* restrict out, int flags) {
  return hook_fstatat(directory, path, out, flags);
}
HOOK int stat64(const char* restrict path, struct stat64* restrict out) {
  return hook_stat(path, (struct stat*)out);
}
HOOK int lstat64(const char* restrict path, struct stat64* restrict out) {
  return hook_lstat(path, (struct stat*)out);
}
HOOK int fstat64(int fd, struct stat64* out) {
  return hook_fstat(fd, (struct stat*)out);
}
HOOK int fstatat64(int directory, const char* restrict path, struct stat64* restrict out, int flags) {
  return hook_fstatat(directory, path, (struct stat*)out, flags);
}
/* What programs call that were linked against a C library older than 2.33. */
HOOK int __xstat(int version, const char* path, struct stat* out) {
  return (void)version, hook_stat(path, out);
}
HOOK int __lxstat(int version, const char* path, struct stat* out) {
  return (void)version, hook_lstat(path, out);
}
HOOK int __fxstat(int version, int fd, struct stat* out) {
  return (void)version, hook_fstat(fd, out);
}
HOOK int __fxstatat(int version, int directory, const char* path, struct stat* out, int flags) {
  return (void)version, hook_fstatat(directory, path, out, flags);
}
HOOK int __xstat64(int version, const char* path, struct stat* out) {
  return (void)version, hook_stat(path, out);
}
HOOK int __lxstat64(int version, const char* path, struct stat* out) {
  return (void)version, hook_lstat(path, out);
}
HOOK int __fxstat64(int version, int fd, struct stat* out) {
  return (void)version, hook_fstat(fd, out);
}
HOOK int __fxstatat64(int version, int directory, const char* path, struct stat* out, int flags) {
  return (void)version, hook_fstatat(directory, path, out, flags);
}

static struct statx_timestamp time_of(struct timespec time) {
  return (struct statx_timestamp){.tv_sec = time.tv_sec, .tv_nsec = (unsigned)time.tv_nsec};
}
/* How ls looks at things. */
HOOK int statx(int directory, const char* restrict path, int flags, unsigned mask, struct statx* restrict out) {
  struct stat found;
  int result = try_stat(path, &found);
  if (result == ETHERWARP_NOT_OURS) return REAL(statx)(directory, path, flags, mask, out);
  if (result != 0) return result;
  *out = (struct statx){.stx_mask = STATX_BASIC_STATS,
                        .stx_blksize = (unsigned)found.st_blksize,
                        .stx_nlink = (unsigned)found.st_nlink,
                        .stx_uid = found.st_uid,
                        .stx_gid = found.st_gid,
                        .stx_mode = (unsigned short)found.st_mode,
                        .stx_ino = found.st_ino,
                        .stx_size = (unsigned long long)found.st_size,
                        .stx_blocks = (unsigned long long)found.st_blocks,
                        .stx_atime = time_of(found.st_atim),
                        .stx_ctime = time_of(found.st_ctim),
                        .stx_mtime = time_of(found.st_mtim),
                        .stx_rdev_major = major(found.st_rdev),
                        .stx_rdev_minor = minor(found.st_rdev),
                        .stx_dev_major = major(found.st_dev),
                        .stx_dev_minor = minor(found.st_dev)};
  return 0;
}

HOOK int access(const char* path, int mode) {
  int result = try_access(path, mode);
  return result != ETHERWARP_NOT_OURS ? result : REAL(access)(path, mode);
}
HOOK int faccessat(int directory, const char* path, int mode, int flags) {
  int result = try_access(path, mode);
  return result != ETHERWARP_NOT_OURS ? result : REAL(faccessat)(directory, path, mode, flags);
}
