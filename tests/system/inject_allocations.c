// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Preloaded: fails one allocation of EtherWARP's in a program, or lists those that it makes. operator new and what
// libstdc++ asks for come here through malloc().
//
// A point is where EtherWARP asked: kind of the call, module and offset of the first return address on the stack that
// lies in a module of EtherWARP. What others ask for passes.
//
//   EWARP_INJECT_REPORT=FILE  at the end of the process a line 'malloc MODULE+OFFSET COUNT' for each point, and
//   'failed'
//                             if the one was failed
//   EWARP_INJECT_FAIL=malloc:MODULE+OFFSET:N
//   EWARP_INJECT_PASSED='FROM-TO FROM-TO '  offsets of EtherWARP's operator new, whose callers are the points
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
extern void __libc_free(void*);

enum { kModules = 256, kPoints = 4096, kStackWords = 256, kName = 40 };

static struct module {
  uintptr_t from, to, base;
  bool ours;
  char name[kName];
} modules[kModules];
static size_t module_count;
static unsigned long long modules_added;

static struct point {
  uintptr_t address;
  unsigned count;
} points[kPoints];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread bool inside;
static bool failed;
static char order_name[kName];
static uintptr_t order_offset;
static unsigned order_count;
static const char* report_path;
static atomic_long live;

// What EtherWARP allocates by: code of the module of that name whose callers are asked instead.
enum { kPassedRanges = 8 };
static struct { uintptr_t from, to; } passed[kPassedRanges];
static size_t passed_count;

static bool is_passed(uintptr_t offset) {
  for (size_t i = 0; i < passed_count; ++i)
    if (offset >= passed[i].from && offset < passed[i].to) return true;
  return false;
}

static bool begins_with(const char* text, const char* with) {
  return strncmp(text, with, strlen(with)) == 0;
}

static int take_module(struct dl_phdr_info* info, size_t size, void* unused) {
  static const char* const kPassed[] = {"libc.so",         "libstdc++", "liburing",
                                        "ld-linux",        "libgcc_s",  "libfmt",
                                        "libisal",         "libm.so",   "libetherwarp-preload",
                                        "libewarp_inject", "linux-vdso"};
  (void)size, (void)unused;
  modules_added = info->dlpi_adds;
  const char* name = strrchr(info->dlpi_name, '/');
  name = name != NULL ? name + 1 : info->dlpi_name;
  for (size_t i = 0; i < sizeof kPassed / sizeof *kPassed; ++i)
    if (begins_with(name, kPassed[i])) return 0;
  for (int i = 0; i < info->dlpi_phnum && module_count < kModules; ++i) {
    const ElfW(Phdr)* p = &info->dlpi_phdr[i];
    if (p->p_type != PT_LOAD || (p->p_flags & PF_X) == 0) continue;
    struct module* m = &modules[module_count++];
    m->base = info->dlpi_addr;
    m->from = info->dlpi_addr + p->p_vaddr;
    m->to = m->from + p->p_memsz;
    m->ours = begins_with(name, "libetherwarp");
    snprintf(m->name, sizeof m->name, "%s", name);
  }
  return 0;
}

static int count_modules(struct dl_phdr_info* info, size_t size, void* added) {
  (void)size;
  *(unsigned long long*)added = info->dlpi_adds;
  return 1;
}

static const struct module* module_at(uintptr_t address) {
  for (size_t i = 0; i < module_count; ++i)
    if (address >= modules[i].from && address < modules[i].to) return &modules[i];
  return NULL;
}

static struct point* point_at(uintptr_t address) {
  for (size_t i = address % kPoints, n = 0; n < kPoints; ++n, i = (i + 1) % kPoints)
    if (points[i].address == 0 || points[i].address == address) {
      points[i].address = address;
      return &points[i];
    }
  return NULL;
}

// True if this call is the one to fail.
static bool is_failed(void) {
  if (report_path == NULL || inside) return false;
  inside = true;
  bool fails = false;
  pthread_attr_t attributes;
  static __thread uintptr_t* end;
  if (end == NULL) {
    void* stack;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
      pthread_attr_getstack(&attributes, &stack, &size);
      pthread_attr_destroy(&attributes);
      end = (uintptr_t*)((char*)stack + size);
    }
  }
  // dl_iterate_phdr() takes the loader's lock, as the loader itself does around its own allocations: asked first.
  unsigned long long added = 0;
  dl_iterate_phdr(count_modules, &added);
  pthread_mutex_lock(&mutex);
  if (added != modules_added) {
    module_count = 0;
    dl_iterate_phdr(take_module, NULL);
  }
  uintptr_t* at = __builtin_frame_address(0);
  for (int n = 0; n < kStackWords && at < end; ++n, ++at) {
    const struct module* m = module_at(*at);
    if (m == NULL) continue;
    if (!m->ours) break;
    if (is_passed(*at - m->base)) continue;
    struct point* p = point_at(*at);
    if (p == NULL) break;
    ++p->count;
    fails = order_count == p->count && *at - m->base == order_offset && strcmp(m->name, order_name) == 0;
    failed = failed || fails;
    break;
  }
  pthread_mutex_unlock(&mutex);
  inside = false;
  return fails;
}

static void* counted(void* p) {
  if (p != NULL) atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
  return p;
}

static void* none(void) {
  errno = ENOMEM;
  return NULL;
}

#pragma GCC visibility push(default)
void* malloc(size_t size) {
  return is_failed() ? none() : counted(__libc_malloc(size));
}

void* calloc(size_t n, size_t size) {
  return is_failed() ? none() : counted(__libc_calloc(n, size));
}

void* realloc(void* old, size_t size) {
  if (is_failed()) return none();
  void* p = __libc_realloc(old, size);
  return old == NULL ? counted(p) : p;
}

void* memalign(size_t alignment, size_t size) {
  return is_failed() ? none() : counted(__libc_memalign(alignment, size));
}

void* aligned_alloc(size_t alignment, size_t size) {
  return memalign(alignment, size);
}

int posix_memalign(void** p, size_t alignment, size_t size) {
  void* got = memalign(alignment, size);
  if (got == NULL) return ENOMEM;
  *p = got;
  return 0;
}

void free(void* p) {
  if (p != NULL) atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
  __libc_free(p);
}

// Allocations that nobody has freed.
long ewarp_inject_live(void);
long ewarp_inject_live(void) {
  return atomic_load(&live);
}
#pragma GCC visibility pop

__attribute__((constructor)) static void begin(void) {
  const char* order = getenv("EWARP_INJECT_FAIL");
  if (order != NULL && sscanf(order, "malloc:%39[^+]+0x%lx:%u", order_name, &order_offset, &order_count) != 3) {
    fprintf(stderr, "EWARP_INJECT_FAIL: what is %s?\n", order);
    _exit(2);
  }
  const char* ranges = getenv("EWARP_INJECT_PASSED");
  for (int used = 0; ranges != NULL && passed_count < kPassedRanges; ranges += used, ++passed_count)
    if (sscanf(ranges, "%lx-%lx %n", &passed[passed_count].from, &passed[passed_count].to, &used) != 2) break;
  report_path = getenv("EWARP_INJECT_REPORT");
}

__attribute__((destructor)) static void end(void) {
  const char* path = report_path;
  report_path = NULL;
  size_t used = 0;  // programs that start others have none, and leave the file alone
  for (size_t i = 0; i < kPoints; ++i) used += points[i].address != 0;
  FILE* f = path != NULL && used != 0 ? fopen(path, "we") : NULL;
  if (f == NULL) return;
  for (size_t i = 0; i < kPoints; ++i) {
    const struct module* m = points[i].address != 0 ? module_at(points[i].address) : NULL;
    if (m != NULL) fprintf(f, "malloc %s+0x%lx %u\n", m->name, points[i].address - m->base, points[i].count);
  }
  if (failed) fprintf(f, "failed\n");
  fclose(f);
}
