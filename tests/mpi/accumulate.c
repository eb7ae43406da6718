// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One-sided operations that compute: accumulate, get_accumulate, fetch_and_op, compare_and_swap; together they lose
// nothing, whoever meets whom.
#include <stdlib.h>
#include <string.h>

#include "suite.h"

static MPI_Win win;
static int64_t* cells;
static bool allocated;  // by MPI; it may then be shared memory

static void make(int n) {
  const MPI_Aint octets = ((MPI_Aint)sizeof(int64_t) * n + 63) / 64 * 64;  // as in window.c
  if (allocated) {
    MPI(MPI_Win_allocate(octets, sizeof(int64_t), MPI_INFO_NULL, comm, &cells, &win));
  } else {
    cells = need_memory((size_t)octets);
    MPI(MPI_Win_create(cells, octets, sizeof(int64_t), MPI_INFO_NULL, comm, &win));
  }
  MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win));
  memset(cells, 0, sizeof(int64_t) * (size_t)n);
  MPI(MPI_Win_unlock(rank, win));
  MPI(MPI_Barrier(comm));
}

static void end(void) {
  MPI(MPI_Win_free(&win));
  if (!allocated) free(cells);
}

static int64_t own(int i) {
  MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win));
  const int64_t value = cells[i];
  MPI(MPI_Win_unlock(rank, win));
  return value;
}

// Sums of everybody in everybody's cells, many elements, several operations.
static void accumulates(int n) {
  int64_t* mine = need_memory(sizeof(int64_t) * (size_t)n);
  make(2 * n);
  for (int i = 0; i < n; ++i) mine[i] = (rank + 1) * (i + 1);
  MPI(MPI_Win_fence(0, win));
  for (int to = 0; to < size; ++to) {
    for (int k = 0; k < 3; ++k) MPI(MPI_Accumulate(mine, n, MPI_INT64_T, to, 0, n, MPI_INT64_T, MPI_SUM, win));
    MPI(MPI_Accumulate(mine, n, MPI_INT64_T, to, n, n, MPI_INT64_T, MPI_MAX, win));
  }
  MPI(MPI_Win_fence(0, win));
  for (int i = 0; i < n; ++i) {
    CHECK(cells[i] == (int64_t)3 * size * (size + 1) / 2 * (i + 1), "sum %d is %lld", i, (long long)cells[i]);
    CHECK(cells[n + i] == (int64_t)size * (i + 1), "maximum %d is %lld", i, (long long)cells[n + i]);
  }
  MPI(MPI_Barrier(comm));
  end();
  free(mine);
}

// Tickets: every number is drawn once.
static void tickets(int n) {
  char *seen = calloc((size_t)(n * size), 1), *all = calloc((size_t)(n * size), 1);
  make(1);
  MPI(MPI_Win_lock_all(0, win));
  const int64_t one = 1;
  for (int i = 0; i < n; ++i) {
    int64_t ticket = -1;
    MPI(MPI_Fetch_and_op(&one, &ticket, MPI_INT64_T, 0, 0, MPI_SUM, win));
    MPI(MPI_Win_flush(0, win));
    CHECK(ticket >= 0 && ticket < (int64_t)n * size && !seen[ticket], "ticket %lld", (long long)ticket);
    seen[ticket] = 1;
  }
  MPI(MPI_Win_unlock_all(win));
  MPI(MPI_Allreduce(seen, all, n * size, MPI_SIGNED_CHAR, MPI_SUM, comm));
  for (int i = 0; i < n * size; ++i) CHECK(all[i] == 1, "ticket %d was drawn %d times", i, all[i]);
  end();
  free(all);
  free(seen);
}

// A lock made of compare_and_swap guards a counter that is read and written by get and put.
static void guarded(int n) {
  make(2);
  MPI(MPI_Win_lock_all(0, win));
  const int64_t nobody = 0, me = rank + 1;
  const bool outside = !own_swaps && rank == 0;
  for (int i = 0; i < n && !outside; ++i) {
    int64_t before = -1, counter;
    do {
      MPI(MPI_Compare_and_swap(&me, &nobody, &before, MPI_INT64_T, 0, 0, win));
      MPI(MPI_Win_flush(0, win));
    } while (before != 0);
    MPI(MPI_Fetch_and_op(NULL, &counter, MPI_INT64_T, 0, 1, MPI_NO_OP, win));
    MPI(MPI_Win_flush(0, win));
    ++counter;
    MPI(MPI_Accumulate(&counter, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, MPI_REPLACE, win));
    MPI(MPI_Win_flush(0, win));
    MPI(MPI_Compare_and_swap(&nobody, &me, &before, MPI_INT64_T, 0, 0, win));
    MPI(MPI_Win_flush(0, win));
    CHECK(before == me, "the lock was %lld's", (long long)before);
  }
  MPI(MPI_Win_unlock_all(win));
  MPI(MPI_Barrier(comm));
  const int64_t total = own(1);
  const int64_t wanted = (int64_t)n * (own_swaps ? size : size - 1);
  CHECK(rank != 0 || total == wanted, "%lld counted of %lld", (long long)total, (long long)wanted);
  MPI(MPI_Barrier(comm));
  end();
}

// get_accumulate gives what was there, before every addition of its own.
static void fetched(int n) {
  int64_t *mine = need_memory(sizeof(int64_t) * (size_t)n), *before = need_memory(sizeof(int64_t) * (size_t)n);
  const int to = (rank + 1) % size;
  make(n);
  MPI(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win));
  for (int64_t step = 0; step < 5; ++step) {
    for (int i = 0; i < n; ++i) mine[i] = i + 1;
    memset(before, 0xff, sizeof(int64_t) * (size_t)n);
    MPI(MPI_Get_accumulate(mine, n, MPI_INT64_T, before, n, MPI_INT64_T, to, 0, n, MPI_INT64_T, MPI_SUM, win));
    MPI(MPI_Win_flush(to, win));
    for (int i = 0; i < n; ++i)
      CHECK(before[i] == step * (i + 1), "element %d of %d was %lld in step %lld", i, n, (long long)before[i],
            (long long)step);
  }
  MPI(MPI_Win_unlock(to, win));
  MPI(MPI_Barrier(comm));
  for (int i = 0; i < n; ++i) CHECK(own(i) == 5 * (i + 1), "element %d is %lld", i, (long long)own(i));
  MPI(MPI_Barrier(comm));
  end();
  free(before);
  free(mine);
}

void accumulate(void) {
  for (int k = 0; k < 2; ++k) {
    allocated = k == 1;
    for (int n = 1; n <= (full ? 100000 : 10000); n *= 10) accumulates(n);
    tickets(full ? 500 : 40);
    if (own_swaps || !allocated) guarded(full ? 100 : 10);
    fetched(1);
    fetched(300);
    fetched(full ? 20000 : 3000);
  }
}
