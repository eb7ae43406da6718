// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// All collectives, blocking: counts around every algorithm's thresholds, every root, in place and not; and
// non-blocking, many under way at once beside point-to-point messages.
#include <stdlib.h>
#include <string.h>

#include "collective.h"

static const int kCounts[] = {0, 1, 3, 100, 1024, 3073, 20000, 100000};
enum { kCountsCount = sizeof kCounts / sizeof kCounts[0] };

static bool skipped(int count) {
  return !full && size > 4 && count > 3073;
}

static void blocking_ones(const struct collective* list, int n, uint64_t* step) {
  for (int i = 0; i < n; ++i)
    for (int k = 0; k < kCountsCount; ++k)
      for (int root = 0; root < (list[i].rooted && !skipped(kCounts[k]) ? size : 1); root += full || size < 5 ? 1 : 5)
        for (int in_place = 0; in_place <= list[i].in_place; ++in_place) {
          if (skipped(kCounts[k])) continue;
          struct job j = {.what = &list[i], .count = kCounts[k], .root = root, .in_place = in_place, .step = ++*step};
          job_begin(&j);
          job_end(&j);
        }
}

void collectives(void) {
  uint64_t step = 0;
  blocking_ones(kMovements, kMovementsCount, &step);
  blocking_ones(kReductions, kReductionsCount, &step);
}

// So many jobs at once, drawn alike on all ranks, with a message to each neighbour beside them.
static void together(uint64_t* state, int n) {
  const int all = kMovementsCount + kReductionsCount, to = (rank + 1) % size, from = (rank + size - 1) % size;
  struct job* jobs = calloc((size_t)n, sizeof *jobs);
  MPI_Request* requests = need_memory(sizeof(MPI_Request) * (size_t)(n + 2));
  const size_t length = kSizes[draw(state, (uint64_t)kSizesCount - 2)];
  const uint64_t step = *state;
  char *in = need_memory(length), *out = need_memory(length);
  fill(out, length, seed_of(rank, to, step));
  MPI(MPI_Irecv(in, (int)length, MPI_BYTE, from, 1, comm, &requests[n]));
  for (int i = 0; i < n; ++i) {
    const int which = (int)draw(state, (uint64_t)all);
    struct job* j = &jobs[i];
    j->what = which < kMovementsCount ? &kMovements[which] : &kReductions[which - kMovementsCount];
    do j->count = kCounts[draw(state, kCountsCount)];
    while (skipped(j->count));
    j->root = (int)draw(state, (uint64_t)size);
    j->in_place = j->what->in_place && draw(state, 2);
    j->step = draw(state, 1 << 30);
    j->request = &requests[i];
    job_begin(j);
    if (i == n / 2) MPI(MPI_Isend(out, (int)length, MPI_BYTE, to, 1, comm, &requests[n + 1]));
  }
  MPI(MPI_Waitall(n + 2, requests, MPI_STATUSES_IGNORE));
  VERIFY(in, length, seed_of(from, rank, step), "message beside collectives");
  for (int i = 0; i < n; ++i) job_end(&jobs[i]);
  free(out);
  free(in);
  free(requests);
  free(jobs);
}

// Nobody leaves a barrier before the last has come.
static void barrier_waits(void) {
  MPI_Request request;
  int done = 0;
  if (rank == 0) {
    for (int i = 1; i < size; ++i) MPI(MPI_Recv(NULL, 0, MPI_BYTE, i, 2, comm, MPI_STATUS_IGNORE));
    MPI(MPI_Ibarrier(comm, &request));
  } else {
    MPI(MPI_Ibarrier(comm, &request));
    for (int i = 0; i < 100; ++i) {
      MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      CHECK(!done, "through the barrier, where one is missing");
    }
    MPI(MPI_Send(NULL, 0, MPI_BYTE, 0, 2, comm));
  }
  MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

void icollectives(void) {
  uint64_t state = suite_seed, step = 1000000;
  MPI_Request request;
  // Each once by itself, then many.
  for (int i = 0; i < kMovementsCount + kReductionsCount; ++i) {
    struct job j = {.what = i < kMovementsCount ? &kMovements[i] : &kReductions[i - kMovementsCount],
                    .count = 1000,
                    .root = size - 1,
                    .step = ++step,
                    .request = &request};
    job_begin(&j);
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    job_end(&j);
  }
  for (int i = 0; i < (full ? 100 : size <= 4 ? 20 : 6); ++i) together(&state, full ? 16 : 8);
  barrier_waits();
}
