// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MPI_Sendrecv and MPI_Sendrecv_replace: rings in both directions, oneself, MPI_PROC_NULL.
#include <stdlib.h>
#include <string.h>

#include "suite.h"

static void shift(int distance, size_t length, int round) {
  const int to = (rank + distance) % size, from = (rank - distance + size) % size;
  const uint64_t seed = seed_of(rank, to, (uint64_t)round), theirs = seed_of(from, rank, (uint64_t)round);
  char *out = need_memory(length), *in = need_memory(length);
  MPI_Status status;
  fill(out, length, seed);
  MPI(MPI_Sendrecv(out, (int)length, MPI_BYTE, to, 1, in, (int)length, MPI_BYTE, from, 1, comm, &status));
  STATUS(&status, from, 1, length);
  VERIFY(in, length, theirs, "sendrecv");
  VERIFY(out, length, seed, "what was sent");
  MPI(MPI_Sendrecv_replace(out, (int)length, MPI_BYTE, to, 2, from, 2, comm, &status));
  STATUS(&status, from, 2, length);
  VERIFY(out, length, theirs, "sendrecv_replace");
  memset(in, 0, length);
  MPI(MPI_Sendrecv(out, (int)length, MPI_BYTE, to, 3, in, (int)length, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm,
                   &status));
  STATUS(&status, from, 3, length);
  VERIFY(in, length, seed_of((from - distance + size) % size, from, (uint64_t)round), "sendrecv from any");
  free(in);
  free(out);
}

static void nobody(void) {
  char octet = 5;
  MPI_Status status;
  MPI_Request request;
  MPI(MPI_Sendrecv(&octet, 1, MPI_BYTE, MPI_PROC_NULL, 1, &octet, 1, MPI_BYTE, MPI_PROC_NULL, 1, comm, &status));
  STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
  MPI(MPI_Irecv(&octet, 1, MPI_BYTE, MPI_PROC_NULL, 1, comm, &request));
  MPI(MPI_Wait(&request, &status));
  STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
  CHECK(octet == 5, "nobody sent something");
}

void sendrecv(void) {
  for (int distance = 0; distance < size; ++distance)
    for (int i = 0; i < kSizesCount; ++i)
      if (full || size <= 4 || distance < 2 || kSizes[i] <= 65536) {
        shift(distance, kSizes[i], i);
        MPI(MPI_Barrier(comm));  // so that the wildcard meets this round's message only
      }
  nobody();
}
