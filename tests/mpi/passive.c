// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One-sided operations without the target's help: rank 0 computes, calls nothing of MPI and sees in its memory alone
// that the others are done; and those of several threads, each with a window of its own. A transport whose targets have
// to call MPI fails here, as it should.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "suite.h"

enum { kBlock = 5000, kThreads = 3 };
enum { kDone, kSum, kTickets, kWords };  // words of rank 0's window; a block for each rank lies behind them
static const double kPatience = 60;      // seconds that rank 0 computes at most

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static MPI_Aint block_of(int whose) {
  return (MPI_Aint)(kWords * sizeof(int64_t)) + (MPI_Aint)whose * kBlock;
}

// No call of MPI from the first origin's first operation to the last one's last.
static void compute(volatile int64_t* words) {
  const double began = seconds();
  volatile double x = 1;
  while (words[kDone] != size - 1) {
    for (int i = 0; i < 100000; ++i) x = x * 1.0000001 + 1e-9;
    CHECK(seconds() - began < kPatience, "a target that computes was not served: %lld of %d are done",
          (long long)words[kDone], size - 1);
  }
}

static int64_t add(MPI_Win win, int word, int64_t n) {
  int64_t before;
  MPI(MPI_Fetch_and_op(&n, &before, MPI_INT64_T, 0, word * (MPI_Aint)sizeof n, MPI_SUM, win));
  MPI(MPI_Win_flush(0, win));
  return before;
}

static void visit(MPI_Win win, int rounds) {
  char out[kBlock], in[kBlock];
  for (int i = 0; i < rounds; ++i) {
    fill(out, kBlock, seed_of(rank, 0, (uint64_t)i));
    MPI(MPI_Put(out, kBlock, MPI_BYTE, 0, block_of(rank), kBlock, MPI_BYTE, win));
    MPI(MPI_Win_flush(0, win));
    MPI(MPI_Get(in, kBlock, MPI_BYTE, 0, block_of(rank), kBlock, MPI_BYTE, win));
    MPI(MPI_Win_flush(0, win));
    VERIFY(in, kBlock, seed_of(rank, 0, (uint64_t)i), "block of a target that computes");
    const int64_t one = 1, ticket = add(win, kTickets, 1);
    CHECK(ticket >= 0 && ticket < (int64_t)rounds * (size - 1), "ticket %lld", (long long)ticket);
    MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, kSum * (MPI_Aint)sizeof one, 1, MPI_INT64_T, MPI_SUM, win));
    MPI(MPI_Win_flush(0, win));
    int64_t swapped;
    const int64_t never = -1;  // the number of who are done is not that
    MPI(MPI_Compare_and_swap(&one, &never, &swapped, MPI_INT64_T, 0, kDone, win));
    MPI(MPI_Win_flush(0, win));
    CHECK(swapped >= 0 && swapped < size - 1, "swapped %lld", (long long)swapped);
  }
  add(win, kDone, 1);
}

static void target_computes(void) {
  const int rounds = size > 4 && !full ? 3 : 20;
  const size_t octets = (size_t)block_of(size);
  char* memory = need_memory(octets);
  int64_t* words = (int64_t*)memory;
  MPI_Win win;
  memset(memory, 0, octets);
  MPI(MPI_Win_create(memory, (MPI_Aint)octets, 1, MPI_INFO_NULL, comm, &win));
  MPI(MPI_Win_lock_all(0, win));
  MPI(MPI_Barrier(comm));
  if (rank == 0)
    compute(words);
  else
    visit(win, rounds);
  MPI(MPI_Win_unlock_all(win));
  MPI(MPI_Barrier(comm));
  if (rank == 0) {
    const int64_t wanted = (int64_t)rounds * (size - 1);
    CHECK(words[kSum] == wanted && words[kTickets] == wanted, "sums %lld and %lld, not %lld", (long long)words[kSum],
          (long long)words[kTickets], (long long)wanted);
    for (int from = 1; from < size; ++from)
      VERIFY(memory + block_of(from), kBlock, seed_of(from, 0, (uint64_t)rounds - 1), "last block put");
  }
  MPI(MPI_Win_free(&win));
  free(memory);
}

// --- threads ---

struct part {
  MPI_Win win;
  char* memory;
  int number;
};

// Open MPI before 4.1.6 counts an operation of btl ofi behind its post, in one counter for all windows. So what another
// thread takes off it in between lets a flush end before the operation has: one thread is inside at a time there.
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION * 10000 + OMPI_MINOR_VERSION * 100 + OMPI_RELEASE_VERSION < 40106
static pthread_mutex_t one_inside = PTHREAD_MUTEX_INITIALIZER;
static void enter(void) {
  pthread_mutex_lock(&one_inside);
}
static void leave(void) {
  pthread_mutex_unlock(&one_inside);
}
#else
static void enter(void) {}
static void leave(void) {}
#endif

// Rank r's thread t puts into the neighbour's window t and adds to its counter.
static void* reach(void* argument) {
  const struct part* p = argument;
  const int to = (rank + 1) % size;
  char out[kBlock], in[kBlock];
  int64_t before;
  const int64_t one = 1;
  const int rounds = full ? 100 : 10;
  for (int i = 0; i < rounds; ++i) {
    fill(out, kBlock, seed_of(rank * kThreads + p->number, to, (uint64_t)i));
    enter();
    MPI(MPI_Put(out, kBlock, MPI_BYTE, to, sizeof before, kBlock, MPI_BYTE, p->win));
    MPI(MPI_Win_flush(to, p->win));
    leave();
    enter();
    MPI(MPI_Get(in, kBlock, MPI_BYTE, to, sizeof before, kBlock, MPI_BYTE, p->win));
    MPI(MPI_Win_flush(to, p->win));
    leave();
    VERIFY(in, kBlock, seed_of(rank * kThreads + p->number, to, (uint64_t)i), "block of a thread");
    enter();
    MPI(MPI_Fetch_and_op(&one, &before, MPI_INT64_T, to, 0, MPI_SUM, p->win));
    MPI(MPI_Win_flush(to, p->win));
    leave();
    CHECK(before == i, "a thread's counter was %lld, not %d", (long long)before, i);
  }
  return NULL;
}

static void threads_reach(void) {
  const int n = provided == MPI_THREAD_MULTIPLE ? kThreads : 1;
  struct part parts[kThreads];
  pthread_t list[kThreads];
  const size_t octets = sizeof(int64_t) + kBlock;
  for (int t = 0; t < n; ++t) {
    parts[t] = (struct part){.memory = need_memory(octets), .number = t};
    memset(parts[t].memory, 0, octets);
    MPI(MPI_Win_create(parts[t].memory, (MPI_Aint)octets, 1, MPI_INFO_NULL, comm, &parts[t].win));
    MPI(MPI_Win_lock_all(0, parts[t].win));
  }
  MPI(MPI_Barrier(comm));
  for (int t = 1; t < n; ++t) CHECK(pthread_create(&list[t], NULL, reach, &parts[t]) == 0, "pthread_create");
  reach(&parts[0]);
  for (int t = 1; t < n; ++t) pthread_join(list[t], NULL);
  for (int t = 0; t < n; ++t) {
    MPI(MPI_Win_unlock_all(parts[t].win));
    MPI(MPI_Win_free(&parts[t].win));
    free(parts[t].memory);
  }
}

void passive(void) {
  if (size > 1) target_computes();
  threads_reach();
}
