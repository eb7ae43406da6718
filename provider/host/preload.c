// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* libetherwarp-preload.so: answers the libc calls with which rdma-core asks the kernel for RDMA devices, and lets all
 * others pass. It is loaded into every process of a shell, so: C library only, no constructor, a load and a compare on
 * the way of a call that is not for us. The answers come from the provider module, which is loaded at the first call
 * that is.
 */
#include "provider/host/preload.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MODULE "libetherwarp-rdmav34.so"
#ifndef ETHERWARP_PROVIDER_DIRECTORY
#define ETHERWARP_PROVIDER_DIRECTORY "/usr/lib/x86_64-linux-gnu/libibverbs"
#endif

/* --- the C library underneath ------------------------------------------------------------------------------------ */

#define DEFINE(result, name, arguments) result(*_Atomic real_##name) arguments;
REAL_FUNCTIONS(DEFINE)

atomic_bool resolved;

/* Threads that come here together store the same values. */
__attribute__((noinline, cold)) void resolve(void) {
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

/* --- our file descriptors ---------------------------------------------------------------------------------------- */

_Atomic unsigned char kinds[TABLE_SIZE];

static int mark(int fd, unsigned char kind) {
  if (fd < 0 || fd >= TABLE_SIZE) return 0;
  atomic_store_explicit(&kinds[fd], kind, memory_order_release);
  return 1;
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
    assert(*here == '/'); /* so the next line finds one */
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

const struct etherwarp_host_ops* host(void) {
  const struct etherwarp_host_ops* ops = atomic_load_explicit(&module, memory_order_acquire);
  if (__builtin_expect(ops == NULL, 0)) {
    int saved = errno;
    ops = load_module();
    errno = saved;
  }
  return ops == &no_module ? NULL : ops;
}
