/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the test programs of Gravel share: a bootstrap by files in a folder, so that no MPI is needed. */
#ifndef GRAVEL_ENDS_H
#define GRAVEL_ENDS_H

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mpi_shim/gravel/gravel.h"

struct gravel_folder {
  const char* path;
  int rank, procs, gathers;
};

static inline void gravel_folder_name(char* out, const struct gravel_folder* f, int rank, const char* suffix) {
  snprintf(out, PATH_MAX, "%s/gather%d.%d%s", f->path, f->gathers, rank, suffix);
}

static inline int gravel_folder_read(const struct gravel_folder* f, int rank, void* out, size_t octets) {
  char name[PATH_MAX];
  FILE* file;
  gravel_folder_name(name, f, rank, "");
  while ((file = fopen(name, "rb")) == NULL) usleep(1000);
  const size_t n = fread(out, 1, octets, file);
  fclose(file);
  return n == octets ? 0 : 1;
}

/* A file appears under its name when it is whole. */
static inline int gravel_folder_gather(const void* mine, void* all, size_t octets, void* context) {
  struct gravel_folder* f = context;
  char part[PATH_MAX], name[PATH_MAX];
  int bad = 0;
  gravel_folder_name(part, f, f->rank, ".part");
  gravel_folder_name(name, f, f->rank, "");
  FILE* file = fopen(part, "wb");
  if (file == NULL || fwrite(mine, 1, octets, file) != octets || fclose(file) != 0 || rename(part, name) != 0) return 1;
  for (int rank = 0; rank < f->procs; ++rank)
    bad |= gravel_folder_read(f, rank, (char*)all + (size_t)rank * octets, octets);
  ++f->gathers;
  return bad;
}

static inline void gravel_failed(const char* what, int line, int got, int wanted) {
  printf("line %d: %s: %d (%s), not %d; %s\n", line, what, got, gravel_strerror(got), wanted, gravel_reason());
  fflush(stdout);
  exit(1);
}

/* The call gives this code, or the program ends. */
#define GRAVEL_GIVES(code, call)                                      \
  do {                                                                \
    const int got_ = (call);                                          \
    if (got_ != (code)) gravel_failed(#call, __LINE__, got_, (code)); \
  } while (0)
#define GRAVEL_OK(call) GRAVEL_GIVES(GRAVEL_SUCCESS, call)
#define GRAVEL_TRUE(what)                                            \
  do {                                                               \
    if (!(what)) gravel_failed(#what, __LINE__, -1, GRAVEL_SUCCESS); \
  } while (0)

/* One waits for the other: by empty messages, of which each says that the other process is there. */
static inline void gravel_meet(int other) {
  gravel_request r[2];
  int proc = other, tag = 999;
  size_t size;
  GRAVEL_OK(gravel_post_rcv_buffer_rdma(other, NULL, 0, 999, &r[0]));
  GRAVEL_OK(gravel_wait_rcv_buffer(&proc, &tag, &size, &r[1]));
  GRAVEL_TRUE(proc == other && tag == 999 && size == 0);
  GRAVEL_OK(gravel_send_fin(r[1]));
  GRAVEL_OK(gravel_waitall(2, r));
  GRAVEL_TRUE(r[0] == GRAVEL_REQUEST_NULL && r[1] == GRAVEL_REQUEST_NULL);
}

#endif
