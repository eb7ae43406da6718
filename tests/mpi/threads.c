// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Several threads of each rank at once, as far as the level that the library provides allows.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

enum { kThreads = 3 };

static MPI_Comm thread_comms[kThreads];

// Thread t of each rank talks to thread t of the neighbours: by its own communicator, and in a common one by its tag.
static void* talk(void* number) {
  const int t = *(int*)number, to = (rank + 1) % size, from = (rank + size - 1) % size;
  for (int i = 0; i < (full ? 300 : 60); ++i) {
    const size_t length = kSizes[(i + t) % (kSizesCount - 3)];
    char *out = need_memory(length), *in = need_memory(length);
    MPI_Request requests[2];
    MPI_Status status;
    const MPI_Comm where = i % 2 ? comm : thread_comms[t];
    fill(out, length, seed_of(rank * kThreads + t, to, (uint64_t)i));
    MPI(MPI_Irecv(in, (int)length, MPI_BYTE, i % 3 ? from : MPI_ANY_SOURCE, t, where, &requests[0]));
    MPI(MPI_Isend(out, (int)length, MPI_BYTE, to, t, where, &requests[1]));
    MPI(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
    MPI(MPI_Wait(&requests[0], &status));
    STATUS(&status, from, t, length);
    VERIFY(in, length, seed_of(from * kThreads + t, rank, (uint64_t)i), "message of a thread");
    if (i % 10 == 0) {
      int sum = 0;
      MPI(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, thread_comms[t]));
      CHECK(sum == size * (size - 1) / 2, "sum %d", sum);
    }
    free(in);
    free(out);
  }
  return NULL;
}

void threads(void) {
  CHECK(provided >= MPI_THREAD_SINGLE && provided <= MPI_THREAD_MULTIPLE, "level %d", provided);
  const int n = provided == MPI_THREAD_MULTIPLE ? kThreads : 1;
  pthread_t list[kThreads];
  int numbers[kThreads];
  for (int t = 0; t < n; ++t) MPI(MPI_Comm_dup(comm, &thread_comms[t]));
  for (int t = 0; t < n; ++t) {
    numbers[t] = t;
    if (t > 0) CHECK(pthread_create(&list[t], NULL, talk, &numbers[t]) == 0, "pthread_create");
  }
  talk(&numbers[0]);
  for (int t = 1; t < n; ++t) pthread_join(list[t], NULL);
  for (int t = 0; t < n; ++t) MPI(MPI_Comm_free(&thread_comms[t]));
}
