// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The one call of libibverbs that is answered here. */
#include "provider/host/preload.h"

#include <dlfcn.h>
#include <string.h>

int ibv_fork_init(void);

static void find(void* library, const char* name, int (**function)(void)) {
  void* found = dlsym(library, name);
  memcpy(function, &found, sizeof found);
}

/* libibverbs takes registered memory away from forked children also where it knows that they need not lose it
 * (ibv_is_fork_initialized(3): the kernel copies what is pinned, and nothing of ours is). What lies on the same pages
 * goes with it, words of the heap among them, so that a child could not even get to its exec(). */
HOOK int ibv_fork_init(void) {
  static const int kUnneeded = 2; /* IBV_FORK_UNNEEDED */
  /* The caller's, which may be in no scope but its own. It stays open, as it was. */
  void* library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == NULL) return ENOSYS;
  int (*status)(void);
  int (*initialize)(void);
  find(library, "ibv_is_fork_initialized", &status); /* not before rdma-core 35 */
  if (status != NULL && status() == kUnneeded) return 0;
  find(library, "ibv_fork_init", &initialize);
  return initialize != NULL ? initialize() : ENOSYS;
}
