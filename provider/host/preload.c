/* libetherwarp-preload.so: answers the libc calls with which rdma-core asks the kernel for RDMA devices, and lets all
 * others pass. It is loaded into every process of a shell, so: C library only, no constructor, a load and a compare on
 * the way of a call that is not for us. The answers come from the provider module, which is loaded at the first call
 * that is.
 *
 * The hooks are exported without a symbol version: a versioned definition does not take the place of the C library's.
 */
#define _GNU_SOURCE
/* The aliases below exist only where the names are not mapped onto each other. */
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/netlink.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <unistd.h>

#include "provider/host/host_ops.h"

#define HOOK __attribute__((visibility("default")))
#define MODULE "libetherwarp-rdmav34.so"
#ifndef ETHERWARP_PROVIDER_DIRECTORY
#define ETHERWARP_PROVIDER_DIRECTORY "/usr/lib/x86_64-linux-gnu/libibverbs"
#endif

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout for both");

/* --- the C library underneath ------------------------------------------------------------------------------------ */

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

#define DECLARE(result, name, arguments) static result(*_Atomic real_##name) arguments;
REAL_FUNCTIONS(DECLARE)

static atomic_bool resolved;

/* Threads that come here together store the same values. */
static __attribute__((noinline, cold)) void resolve(void) {
  int saved = errno;
#define RESOLVE(result, name, arguments)                                 \
  {                                                                      \
    void* found = dlsym(RTLD_NEXT, #name);                               \
    result(*function) arguments;                                         \
    memcpy(&function, &found, sizeof function);                          \
    atomic_store_explicit(&real_##name, function, memory_order_relaxed); \
  }
  REAL_FUNCTIONS(RESOLVE)
  atomic_store_explicit(&resolved, 1, memory_order_release);
  errno = saved;
}

#define REAL(name)                                                                                    \
  (__builtin_expect(!atomic_load_explicit(&resolved, memory_order_acquire), 0) ? resolve() : (void)0, \
   atomic_load_explicit(&real_##name, memory_order_relaxed))

/* --- our file descriptors ---------------------------------------------------------------------------------------- */

/* One byte each; pages that were never written cost nothing. */
#define TABLE_SIZE (1 << 20)
static _Atomic unsigned char kinds[TABLE_SIZE];

static int mark(int fd, unsigned char kind) {
  if (fd < 0 || fd >= TABLE_SIZE) return 0;
  atomic_store_explicit(&kinds[fd], kind, memory_order_release);
  return 1;
}

static inline unsigned char kind_of(int fd) {
  return (unsigned)fd < TABLE_SIZE ? atomic_load_explicit(&kinds[fd], memory_order_acquire) : ETHERWARP_FD_NONE;
}

/* --- the provider module ----------------------------------------------------------------------------------------- */

static const struct etherwarp_preload_ops preload_ops = {ETHERWARP_HOST_VERSION, mark};
static const struct etherwarp_host_ops no_module;
static _Atomic(const struct etherwarp_host_ops*) module; /* null: not tried; &no_module: cannot be had */

static void complain(const char* what, const char* why) {
  char line[1024];
  int length = snprintf(line, sizeof line, "etherwarp: error: %s: %s\n", what, why);
  if (length >= (int)sizeof line) length = (int)sizeof line - 1;
  if (length > 0) (void)!__write(STDERR_FILENO, line, (size_t)length);
}

static int exists(const char* path) {
  return syscall(SYS_faccessat, AT_FDCWD, path, R_OK) == 0;
}

/* Beside this library, where an installation puts it, or where libibverbs has its providers. */
static void find_module(char* path, size_t size) {
  const char* named = secure_getenv("ETHERWARP_PROVIDER");
  if (named != NULL && *named != '\0') {
    snprintf(path, size, "%s", named);
    return;
  }
  Dl_info self;
  char* here = dladdr(&preload_ops, &self) != 0 && self.dli_fname != NULL ? realpath(self.dli_fname, NULL) : NULL;
  if (here != NULL) {
    static const char* const places[] = {"", "libibverbs/", "../libibverbs/", "../lib/"};
    *(strrchr(here, '/') + 1) = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; ++i) {
      snprintf(path, size, "%s%s" MODULE, here, places[i]);
      if (exists(path)) break;
      *path = '\0';
    }
    free(here);
    if (*path != '\0') return;
  }
  snprintf(path, size, "%s/" MODULE, ETHERWARP_PROVIDER_DIRECTORY);
}

/* No lock of ours is held over dlopen(): a thread that is inside the loader may be waiting for an RDMA device. Threads
 * that come here together load the same module. */
static __attribute__((noinline, cold)) const struct etherwarp_host_ops* load_module(void) {
  char path[PATH_MAX] = "";
  find_module(path, sizeof path);
  void* handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  const char* why = handle == NULL ? dlerror() : NULL;
  const struct etherwarp_host_ops* ops = handle == NULL ? NULL : dlsym(handle, "etherwarp_host");
  if (handle != NULL && ops == NULL) why = "it is not the EtherWARP provider";
  if (ops != NULL && ops->version != ETHERWARP_HOST_VERSION) {
    why = "it belongs to another version of EtherWARP than this preload library";
    ops = NULL;
  }
  const struct etherwarp_host_ops* expected = NULL;
  if (ops != NULL) {
    ops->attach(&preload_ops);
    atomic_store(&module, ops);
  } else if (atomic_compare_exchange_strong(&module, &expected, &no_module)) {
    char what[PATH_MAX + 128];
    snprintf(what, sizeof what, "cannot load the provider %s (ETHERWARP_PROVIDER names another place)", path);
    complain(what, why != NULL ? why : "unknown reason");
  }
  return atomic_load(&module);
}

/* The provider, loaded now if need be; null if it cannot be had. */
static const struct etherwarp_host_ops* host(void) {
  const struct etherwarp_host_ops* ops = atomic_load_explicit(&module, memory_order_acquire);
  if (__builtin_expect(ops == NULL, 0)) {
    int saved = errno;
    ops = load_module();
    errno = saved;
  }
  return ops == &no_module ? NULL : ops;
}

/* -errno to the libc convention. */
static inline long outcome(long result) {
  if (result >= 0) return result;
  errno = (int)-result;
  return -1;
}

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

/* --- what is done with the fds ----------------------------------------------------------------------------------- */

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
